-- A gateway reports itself, and sees all others.
-- KEYS gateways
-- ARGV gateway entry, then gateway and entry of each that is to be forgotten unless it has changed
-- Returns the hash as it was before, so that a gateway notices when its own entry is lost: gateway, entry, ...
redis.call('DEL', KEYS[1] .. ':none') -- Redis at 'maxmemory' refuses a script at its first write, unless that frees memory
for i = 3, #ARGV, 2 do
  if redis.call('HGET', KEYS[1], ARGV[i]) == ARGV[i + 1] then redis.call('HDEL', KEYS[1], ARGV[i]) end
end
local entries = redis.call('HGETALL', KEYS[1])
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return entries
