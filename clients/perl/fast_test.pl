# Cache::Memcached::Fast: the text protocol with noreply, cas, gat and multi-key variants of everything.
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use Check;
use Cache::Memcached::Fast;

my $m = Cache::Memcached::Fast->new({
    servers => [$ENV{SERVER}], namespace => 'perl:', connect_timeout => 20, io_timeout => 20,
    compress_threshold => 10_000, max_size => 10 * 1024 * 1024, utf8 => 1,
});
ok($m->flush_all, 'flush_all');

same($m->set('a', $Check::every_byte), 1, 'set');
same($m->get('a'), $Check::every_byte, 'get');
same($m->set('empty', ''), 1, 'set of nothing');
same($m->get('empty'), '', 'get of nothing');
same($m->set('ref', {name => 'nuthatch', list => [1, 2]}), 1, 'set of a structure');
same($m->get('ref')->{list}[1], 2, 'get of a structure');
same($m->set('utf8', "\x{43f}\x{43e}"), 1, 'set of wide characters');
same($m->get('utf8'), "\x{43f}\x{43e}", 'get of wide characters');
same($m->get('absent'), undef, 'get of an absent key');
same($m->add('a', 1), '', 'add on present');
same($m->add('b', 'mid'), 1, 'add on absent');
same($m->replace('absent', 1), '', 'replace on absent');
same($m->append('b', '>'), 1, 'append');
same($m->prepend('b', '<'), 1, 'prepend');
same($m->append('absent', '>'), '', 'append on absent');
same($m->get('b'), '<mid>', 'after append and prepend');
same($m->delete('b'), 1, 'delete');
same($m->delete('b'), '', 'second delete');

$m->set('n', 10);
same($m->incr('n', 5), 15, 'incr');
same($m->decr('n', 6), 9, 'decr');
same($m->decr('n', 100) + 0, 0, 'decr below nothing');
same($m->incr('absent'), '', 'incr on absent');

$m->set('c', 1);
my $got = $m->gets('c');
same($got->[1], 1, 'gets');
same($m->cas('c', $got->[0], 2), 1, 'cas that matches');
same($m->cas('c', $got->[0], 3), '', 'cas that is out of date');
same($m->get('c'), 2, 'after both cas');

my @keys = map {"many:$_"} 0 .. 999;
my @stored = $m->set_multi(map {["many:$_", "value $_"]} 0 .. 999);
same(scalar(grep {$_} @stored), 1000, 'set_multi');
my $many = $m->get_multi(@keys, 'absent');
same(scalar(keys %$many), 1000, 'get_multi of 1000 keys');
same($many->{'many:777'}, 'value 777', 'one of them');
same(scalar(keys %{$m->gets_multi(@keys)}), 1000, 'gets_multi');
same(scalar(grep {$_} $m->incr_multi(['n', 1], ['m', 1])), 1, 'incr_multi');
same(scalar(grep {$_} $m->delete_multi(@keys)), 1000, 'delete_multi');
same(scalar(keys %{$m->get_multi(@keys)}), 0, 'get_multi of deleted keys');

# In void context the client adds noreply.
$m->set("quiet:$_", $_) for 1 .. 500;
$m->delete("quiet:$_") for 1 .. 250;
$m->incr("quiet:$_") for 251 .. 500;
$m->nowait_push;
same($m->get('quiet:1'), undef, 'noreply delete');
same($m->get('quiet:500'), 501, 'noreply incr');

same($m->set('large', $Check::incompressible_large), 1, 'set of 900 KB');
ok($m->get('large') eq $Check::incompressible_large, 'get of 900 KB');
my $direct = Cache::Memcached::Fast->new({servers => [$ENV{SERVER}], namespace => 'perl:', max_size => 10 * 1024 * 1024});
ok(!$direct->set('large', 'x' x (2 * 1024 * 1024)), 'set of 2 MiB');
same($m->get('large'), undef, 'a refused set leaves no stale value');
same($m->set('squeezed', 'nuthatch ' x 300_000), 1, 'compressed set');
ok($m->get('squeezed') eq 'nuthatch ' x 300_000, 'compressed get');
same(scalar(keys %{$m->server_versions}), 1, 'server_versions');

$m->set_multi(['brief', 1, 2], ['touched', 2, 2], ['got', 3, 2], ['forever', 4]);
same($m->touch('touched', 100), 1, 'touch');
same($m->touch('absent', 100), '', 'touch on absent');
same($m->gat(100, 'got'), 3, 'gat');
same(scalar(keys %{$m->gat_multi(100, 'got', 'forever', 'absent')}), 2, 'gat_multi');
same($m->gats(100, 'got')->[1], 3, 'gats');
pass_seconds(2);
same(join(' ', sort keys %{$m->get_multi(qw(brief touched got forever))}), 'forever got touched', 'after the expiry');
ok($m->flush_all, 'flush_all');
same($m->get('forever'), undef, 'get after flush_all');

if ($ENV{SERVER} !~ m{^/}) {
    my $spread = Cache::Memcached::Fast->new({servers => [map {{address => $_, weight => 1.5}} split / /, $ENV{SERVERS}], ketama_points => 150});
    $spread->set("spread:$_", $_) for 0 .. 999;
    $spread->nowait_push;
    same(scalar(keys %{$spread->get_multi(map {"spread:$_"} 0 .. 999)}), 1000, 'ketama over three servers');
}
done();
