# What the Perl clients' tests share: comparing and letting time pass. See clients/README.md for the variables.
package Check;
use strict;
use warnings;
use IO::Socket::INET;
use IO::Socket::UNIX;
use Exporter 'import';
our @EXPORT = qw(same ok done pass_seconds);

our $every_byte = join('', map {chr} 0 .. 255) . "\r\nEND\r\n\0";
srand 7;
our $incompressible_large = pack 'C*', map {int rand 256} 1 .. 900_000;
my $checks = 0;

sub shown { defined $_[0] ? substr("'$_[0]'", 0, 200) : 'undef' }

sub same($$$) {
    my ($got, $expected, $what) = @_;
    $checks++;
    return if defined $got ? defined $expected && $got eq $expected : !defined $expected;
    print "$what: expected ", shown($expected), ' and got ', shown($got), "\n";
    exit 1;
}

sub ok($$) {
    my ($true, $what) = @_;
    same($true ? 'true' : 'false', 'true', $what);
}

sub pass_seconds {
    my ($seconds) = @_;
    if (($ENV{CLOCK} // '') ne 'debugtime') {
        sleep $seconds + 1;
        return;
    }
    my $control = $ENV{SERVER} =~ m{^/} ? IO::Socket::UNIX->new($ENV{SERVER}) : IO::Socket::INET->new($ENV{SERVER});
    print $control 'debugtime ', $seconds + 1, "\r\n";
    same(scalar(<$control>), "OK\r\n", 'debugtime');
}

sub done { print "ok $checks\n" }

1;
