#!lua
-- Frees the slots that hold exactly these values: the bank has nothing in progress.
-- KEYS: state hash, waiting marks, slot 1 .. slot N   ARGV: per slot its number and value
local freed = false
for i = 1, #ARGV, 2 do
  local key = KEYS[2 + ARGV[i]]
  if redis.call('GET', key) == ARGV[i + 1] then
    redis.call('DEL', key)
    redis.call('HDEL', KEYS[1], 'until:' .. ARGV[i])
    freed = true
  end
end
-- A hint for those who wait; they poll anyway.
if freed and redis.call('EXISTS', KEYS[2]) == 1 then
  redis.call('PUBLISH', KEYS[1], 'free')
end
return 1
