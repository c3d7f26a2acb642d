# Answers where Dalli places keys. See ../php/placement.php for what comes in and goes out. Which servers are alive is said by the
# option dead, not found out by connecting; the ring and its failover are Dalli's.

require 'dalli'

keys = File.readlines(ARGV[0], chomp: true)
answers = 0
$stdin.each_line(chomp: true) do |line|
  name, _distribution, _hash, options, servers = line.split("\t", -1)
  settings = options.split(',').to_h { |word| word.split('=') }
  specs = servers.split(';').map do |server|
    host, port, weight = server.split(' ')
    if host.start_with?('/')
      "#{host}:#{weight}"
    else
      "#{host.include?(':') ? "[#{host}]" : host}:#{port}:#{weight}"
    end
  end
  dead = settings.fetch('dead', '').split('+').map(&:to_i)
  client = Dalli::Client.new(specs, namespace: settings['namespace'])
  ring = client.send(:ring)
  ring.servers.each_with_index { |server, index| server.define_singleton_method(:alive?) { !dead.include?(index) } }
  index = ring.servers.each_with_index.to_h
  found = keys.map do |key|
    index[ring.server_for_key(client.instance_variable_get(:@key_manager).validate_key(key))]
  rescue Dalli::RingError
    'none'
  end
  puts "#{name} #{found.join(' ')}"
  answers += 1
end
puts "ok #{answers}"
