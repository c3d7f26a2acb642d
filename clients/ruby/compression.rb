# Writes compressed values (`write`), or reads what was written as Dalli would (`read`). See ../php/compression.php.

require 'dalli'

what = ARGV[0]
client = Dalli::Client.new(ENV.fetch('SERVER'), compress: true, compression_min_size: 400)
checks = 0
[10, 300, 4000, 20_000].each do |lines|
  text = (0...lines).map { |n| "line #{n * n % 9973} of #{lines}\n" }.join.b
  client.set("theirs:#{lines}", text, 0, raw: true) if what == 'write'
  got = client.get("#{what == 'write' ? 'theirs' : 'ours'}:#{lines}", raw: true)
  abort "dalli #{lines}: got #{got.inspect[0, 300]}" unless got == text
  checks += 1
end
puts "ok #{checks}"
