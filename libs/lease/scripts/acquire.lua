#!lua
-- Grants one slot of a set, or says why not. All time is the server's.
-- KEYS: state hash, waiting marks, slot 1 .. slot N
-- ARGV: value, class, replica, config record, ttl, longest, quarantine,
--       first own, last own, first shared, last shared, rotation, mark (0: do not wait)
local state, waiting = KEYS[1], KEYS[2]
local n = #KEYS - 2
local value, class, replica, config = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local ttl, longest, quarantine = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local rotation, mark = tonumber(ARGV[12]), tonumber(ARGV[13])

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local known = redis.call('HMGET', state, 'incarnation', 'quarantine_until', 'config', 'config_until')

-- The incarnation is "run_id:master_replid", 40 digits each. That it is unchanged is
-- looked for, which is cheap; only a new one is taken apart.
local info = redis.call('INFO', 'server', 'replication')
local function unchanged(was)
  return was and #was == 81 and string.find(info, 'run_id:' .. string.sub(was, 1, 40), 1, true)
    and string.find(info, 'master_replid:' .. string.sub(was, 42), 1, true)
end

-- Returns a stored time, cut to now + longest where the clock stepped back, so that
-- nothing outlives the longest lease by the size of the step.
local function cut(field, stored)
  local at = tonumber(stored or 0)
  if at > now + longest then
    at = now + longest
    redis.call('HSET', state, field, at)
  end
  return at
end

-- State was lost, or this is another server: nobody is granted anything for Q.
if not unchanged(known[1]) then
  local incarnation = string.match(info, 'run_id:(%x+)') .. ':' .. string.match(info, 'master_replid:(%x+)')
  redis.call('HSET', state, 'incarnation', incarnation, 'quarantine_until', now + quarantine)
  return {'quarantined', quarantine}
end
local q = tonumber(known[2] or 0)
if q > now + quarantine then -- the clock stepped back
  q = now + quarantine
  redis.call('HSET', state, 'quarantine_until', q)
end
if q > now then
  return {'quarantined', q - now}
end

-- Another version with other numbers holds the set.
local config_until = cut('config_until', known[4])
if config_until > now and known[3] ~= config then
  return {'conflict', known[3]}
end

-- Who of this class holds how many, and who waits.
local values = redis.call('MGET', unpack(KEYS, 3))
local replicas, holds = 1, {[replica] = 0}
local function count(r, slots)
  if not holds[r] then
    holds[r] = 0
    replicas = replicas + 1
  end
  holds[r] = holds[r] + slots
end
for s = 1, n do
  if values[s] then
    local token, c, r = string.match(values[s], '^(%S+) (%S+) (%S+)')
    if token ~= 'cooling' and c == class then count(r, 1) end
  end
end
local mine, marked, peer_waits, poorer_waits, rival_waits = holds[replica], false, false, false, false
for _, m in ipairs(redis.call('ZRANGEBYSCORE', waiting, '(' .. now, now + 5000)) do
  local c, r = string.match(m, '^(%S+) (%S+)')
  if c ~= class then
    rival_waits = true
  elseif r == replica then
    marked = true
  else
    count(r, 0)
    peer_waits = true
    poorer_waits = poorer_waits or holds[r] < mine
  end
end

-- The class that had slot s last, if the slot is free.
local function free(s)
  if values[s] then return nil end
  local slot = redis.call('HMGET', state, 'until:' .. s, 'class:' .. s)
  if cut('until:' .. s, slot[1]) > now then return nil end
  return slot[2] or ''
end

local own_first, own_last = tonumber(ARGV[8]), tonumber(ARGV[9])
local shared_first, shared_last = tonumber(ARGV[10]), tonumber(ARGV[11])
local own, shared = own_last - own_first + 1, shared_last - shared_first + 1
local share = math.ceil((own + shared) / replicas)
if peer_waits and (mine >= share or poorer_waits) then return {'share'} end

local slot
for i = 0, own - 1 do
  local s = own_first + (i + rotation) % own
  if free(s) then slot = s break end
end
if not slot then
  for i = 0, shared - 1 do
    local s = shared_first + (i + rotation) % shared
    -- While the other class waits, the class that had a shared slot last leaves it.
    local last = free(s)
    if last and not (rival_waits and last == class) then slot = s break end
  end
end

if slot then
  redis.call('SET', KEYS[2 + slot], value, 'PX', ttl)
  redis.call('HSET', state, 'until:' .. slot, now + ttl, 'class:' .. slot, class,
    'config', config, 'config_until', now + longest)
  if marked then redis.call('ZREM', waiting, class .. ' ' .. replica) end
  return {'granted', slot}
end

-- A key that would outlive the longest lease was left by a clock that stepped back.
for s = 1, n do
  if values[s] then
    local left = redis.call('PTTL', KEYS[2 + s])
    if left > longest or left == -1 then redis.call('PEXPIRE', KEYS[2 + s], longest) end
  end
end
if mark > 0 and mine < share then
  redis.call('ZADD', waiting, now + mark, class .. ' ' .. replica)
  redis.call('PEXPIRE', waiting, 2 * mark)
end
return {'taken'}
