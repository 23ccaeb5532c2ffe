-- Reads the record of a session and a part of one of its streams, at one moment.
-- KEYS m p stream
-- ARGV id from which the stream is read ('(' before it: after it), bytes (0 = the record only), then fields of m
-- Returns the values of the fields, the id of the last entry of p ('' = none), ids and entries of the stream in turn,
-- and 1 if there are more of them. At least one entry is returned; the entry that exceeds the bytes is the last.
local values = redis.call('HMGET', KEYS[1], unpack(ARGV, 3))
local last = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)[1]
local entries, bytes, from, limit = {}, 0, ARGV[1], tonumber(ARGV[2])
while bytes < limit do
  local part = redis.call('XRANGE', KEYS[3], from, '+', 'COUNT', 4)
  if #part == 0 then return {values, last and last[1] or '', entries, 0} end
  for _, entry in ipairs(part) do
    if bytes < limit then
      entries[#entries + 1] = entry[1]
      entries[#entries + 1] = entry[2][2]
      bytes = bytes + #entry[2][2] + 64
      from = '(' .. entry[1]
    end
  end
end
return {values, last and last[1] or '', entries, 1}
