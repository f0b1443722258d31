#!lua
-- Keeps a slot taken, but by nobody, until the bank is certainly done with it.
-- KEYS: state hash, slot   ARGV: value, tombstone, milliseconds, longest, number of the slot
if redis.call('GET', KEYS[2]) ~= ARGV[1] then return 0 end
local px = math.min(tonumber(ARGV[3]), tonumber(ARGV[4]))
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('SET', KEYS[2], ARGV[2], 'PX', px)
redis.call('HSET', KEYS[1], 'until:' .. ARGV[5], now + px)
return 1
