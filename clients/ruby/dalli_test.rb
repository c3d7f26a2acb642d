# dalli: the binary protocol, quiet commands and multi blocks.
require 'dalli'
require 'socket'

SERVER = ENV.fetch('SERVER')
UNIX = SERVER.start_with?('/')
EVERY_BYTE = ((0..255).to_a.pack('C*') + "\r\nEND\r\n\0").b
$checks = 0

def same(got, expected, what)
  $checks += 1
  return if got == expected

  puts "#{what}: expected #{expected.inspect[0, 200]} and got #{got.inspect[0, 200]}"
  exit 1
end

def pass_seconds(seconds)
  return sleep(seconds + 1) unless ENV['CLOCK'] == 'debugtime'

  control = UNIX ? UNIXSocket.new(SERVER) : TCPSocket.new(*SERVER.split(':'))
  control.write("debugtime #{seconds + 1}\r\n")
  same(control.gets, "OK\r\n", 'debugtime')
end

client = Dalli::Client.new(SERVER, namespace: 'ruby', compress: true, socket_timeout: 20, raise_errors: true)
client.flush
[EVERY_BYTE, '', 'text', 42, 2.5, true, nil, { 'name' => 'nuthatch', 'list' => [1, 2] }, :symbol].each do |thing|
  same(!!client.set('typed', thing), true, 'set')
  same(client.get('typed'), thing, 'get: flags tell the type')
end
same(client.get('absent'), nil, 'get of an absent key')
same(!!client.add('typed', 1), false, 'add on present')
same(!!client.add('b', 'mid', nil, raw: true), true, 'add on absent')
same(!!client.append('b', '>'), true, 'append')
same(!!client.prepend('b', '<'), true, 'prepend')
same(client.get('b', raw: true), '<mid>', 'after append and prepend')
same(!!client.append('absent', '>'), false, 'append on absent')
same(client.replace('absent', 1), 0, 'replace on absent gives no unique')
same(!!client.replace('b', 2), true, 'replace on present')
same(!!client.delete('b'), true, 'delete')
same(!!client.delete('b'), false, 'second delete')

same(client.incr('n', 5, 100, 10), 10, 'incr on absent starts at the default')
same(client.incr('n', 5), 15, 'incr')
same(client.decr('n', 6), 9, 'decr')
same(client.decr('n', 100), 0, 'decr below nothing')
same(client.incr('absent', 1), nil, 'incr on absent')

client.set('c', 1)
same(!!client.cas('c') { |value| value + 1 }, true, 'cas')
same(client.cas('absent') { |value| value }, nil, 'cas on absent')
same(!!client.cas('c') { |value| client.set('c', 50); value + 1 }, false, 'cas after another write')
same(client.get('c'), 50, 'after the cas')
same(client.fetch('fetched') { 7 }, 7, 'fetch computes')
same(client.fetch('fetched') { 8 }, 7, 'fetch finds')

client.multi { 1000.times { |n| client.set("many:#{n}", "value #{n}") } }
keys = (0...1000).map { |n| "many:#{n}" }
same(client.get_multi(*keys, 'absent'), keys.to_h { |key| [key, "value #{key[5..]}"] }, 'get_multi of 1000 keys after quiet sets')
client.multi { keys.each { |key| client.delete(key) } }
same(client.get_multi(*keys), {}, 'get_multi after quiet deletes')

random = Random.new(7).bytes(900_000)
same(!!client.set('large', random, nil, raw: true), true, 'set of 900 KB')
same(client.get('large', raw: true) == random, true, 'get of 900 KB')
same(!!client.set('squeezed', 'nuthatch ' * 300_000), true, 'compressed set')
same(client.get('squeezed') == 'nuthatch ' * 300_000, true, 'compressed get')

same(client.stats.values.first['pointer_size'], '64', 'stats')
same(client.stats(:settings).values.first['item_size_max'], '1048576', 'stats settings')
same(client.version.length, 1, 'version')

client.set('brief', 1, 2)
client.set('touched', 2, 2)
client.set('got', 3, 2)
client.set('forever', 4, 0)
same(!!client.touch('touched', 100), true, 'touch')
same(client.gat('got', 100), 3, 'gat')
pass_seconds(2)
same(client.get_multi('brief', 'touched', 'got', 'forever'), { 'touched' => 2, 'got' => 3, 'forever' => 4 }, 'after the expiry')
client.flush
same(client.get('forever'), nil, 'flush')
client.close

unless UNIX
  spread = Dalli::Client.new(ENV.fetch('SERVERS').split)
  1000.times { |n| spread.set("spread:#{n}", n) }
  same(spread.get_multi((0...1000).map { |n| "spread:#{n}" }).size, 1000, 'three servers')
  same(spread.stats.values.map { |stats| stats['curr_items'].to_i }.min.positive?, true, 'every server holds some')
end
puts "ok #{$checks}"
