-- A gateway writes its entry, and reads the entries of all gateways.
-- KEYS gateways
-- ARGV gateway and entry, then gateway and entry of each gateway that is to be removed if its entry has not changed
-- Returns the hash before this write, so that a gateway detects the loss of its own entry: gateway, entry, ...
-- Redis at 'maxmemory' refuses a script at its first write, unless that write frees memory. DEL counts as such a write.
redis.call('DEL', KEYS[1] .. ':none')
for i = 3, #ARGV, 2 do
  if redis.call('HGET', KEYS[1], ARGV[i]) == ARGV[i + 1] then redis.call('HDEL', KEYS[1], ARGV[i]) end
end
local entries = redis.call('HGETALL', KEYS[1])
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return entries
