-- Reads the record of a session, and a part of one of its streams, in one step.
-- KEYS m p stream
-- ARGV id of the first entry of the part (with '(' before an id, the part begins after that id), size of the part in
--      bytes (0 = read only the record), names of the fields of m
-- Returns four values: the values of the fields; the id of the last entry of p ('' = p is empty); the part as a list
-- of id, entry, id, entry, ...; and 0 if no entry follows the part, or 1 if entries may follow. The part has at least
-- one entry, if there is any. The entry with which the part reaches its size is the last entry of the part.
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
