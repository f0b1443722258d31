#!lua
-- Grants one slot of a set, or says why not. All time is the server's.
-- KEYS: state hash, waiting marks, slot 1 .. slot N
-- ARGV: value, class, replica, config record, ttl, longest, quarantine,
--       first own, last own, first shared, last shared, rotation, mark (0: do not wait)
local state, waiting, n = KEYS[1], KEYS[2], #KEYS - 2
local value, class, replica, config = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local ttl, longest = tonumber(ARGV[5]), tonumber(ARGV[6])
local own_first, shared_first = tonumber(ARGV[8]), tonumber(ARGV[10])
local own, shared = tonumber(ARGV[9]) - own_first + 1, tonumber(ARGV[11]) - shared_first + 1
local rotation = tonumber(ARGV[12])

-- The slot that is tried first is read with the rest: mostly it is free.
local first = own > 0 and own_first + rotation % own or shared_first + rotation % shared
local known = redis.call('HMGET', state, 'incarnation', 'quarantine_until', 'config', 'config_until',
  'until:' .. first, 'class:' .. first)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- The incarnation is "run_id:master_replid", 40 digits each. State was lost, or this is
-- another server, if it is not what INFO says: then nobody is granted anything for Q.
local was, info = known[1], redis.call('INFO', 'server', 'replication')
if not (was and #was == 81 and string.find(info, 'run_id:' .. string.sub(was, 1, 40), 1, true)
  and string.find(info, 'master_replid:' .. string.sub(was, 42), 1, true)) then
  local incarnation = string.match(info, 'run_id:(%x+)') .. ':' .. string.match(info, 'master_replid:(%x+)')
  redis.call('HSET', state, 'incarnation', incarnation, 'quarantine_until', now + ARGV[7])
  return {'quarantined', tonumber(ARGV[7])}
end

-- Returns a stored time, cut to now + most where the clock stepped back, so that nothing
-- outlives the longest lease, or the quarantine, by the size of the step.
local function cut(field, stored, most)
  local at = tonumber(stored or 0)
  if at > now + most then
    at = now + most
    redis.call('HSET', state, field, at)
  end
  return at
end

local q = cut('quarantine_until', known[2], tonumber(ARGV[7]))
if q > now then return {'quarantined', q - now} end

-- Another version with other numbers holds the set.
if cut('config_until', known[4], longest) > now and known[3] ~= config then
  return {'conflict', known[3]}
end

-- Counts the slots of each replica of this class, holders and waiters alike.
local values, replicas, holds = nil, 1, {[replica] = 0}
local function count(r, slots)
  if not holds[r] then
    holds[r] = 0
    replicas = replicas + 1
  end
  holds[r] = holds[r] + slots
end
local function tally()
  values = redis.call('MGET', unpack(KEYS, 3))
  for s = 1, n do
    if values[s] then
      local token, c, r = string.match(values[s], '^(%S+) (%S+) (%S+)')
      if token ~= 'cooling' and c == class then count(r, 1) end
    end
  end
end

local marked, rival_waits = false, false
if redis.call('EXISTS', waiting) == 1 then
  tally()
  local peer_waits, poorer_waits = false, false
  for _, m in ipairs(redis.call('ZRANGEBYSCORE', waiting, '(' .. now, now + 5000)) do
    local c, r = string.match(m, '^(%S+) (%S+)')
    if c ~= class then
      rival_waits = true
    elseif r == replica then
      marked = true
    else
      count(r, 0)
      peer_waits = true
      poorer_waits = poorer_waits or holds[r] < holds[replica]
    end
  end
  local share = math.ceil((own + shared) / replicas)
  if peer_waits and (holds[replica] >= share or poorer_waits) then return {'share'} end
end

-- Takes slot s if its key is absent and what was granted before is over.
local function take(s, is_shared)
  local slot = s == first and {known[5], known[6]} or redis.call('HMGET', state, 'until:' .. s, 'class:' .. s)
  if cut('until:' .. s, slot[1], longest) > now then return false end
  -- While another class waits, the one that had a shared slot last leaves it.
  if is_shared and rival_waits and slot[2] == class then return false end
  return redis.call('SET', KEYS[2 + s], value, 'NX', 'PX', ttl)
end

local slot
for i = 0, own - 1 do
  local s = own_first + (i + rotation) % own
  if take(s, false) then slot = s break end
end
if not slot then
  for i = 0, shared - 1 do
    local s = shared_first + (i + rotation) % shared
    if take(s, true) then slot = s break end
  end
end
if slot then
  redis.call('HSET', state, 'until:' .. slot, now + ttl, 'class:' .. slot, class,
    'config', config, 'config_until', now + longest)
  if marked then redis.call('ZREM', waiting, class .. ' ' .. replica) end
  return {'granted', slot}
end

-- A key that would outlive the longest lease was left by a clock that stepped back.
if not values then tally() end
for s = 1, n do
  if values[s] then
    local left = redis.call('PTTL', KEYS[2 + s])
    if left > longest or left == -1 then redis.call('PEXPIRE', KEYS[2 + s], longest) end
  end
end
local mark = tonumber(ARGV[13])
if mark > 0 and holds[replica] < math.ceil((own + shared) / replicas) then
  redis.call('ZADD', waiting, now + mark, class .. ' ' .. replica)
  redis.call('PEXPIRE', waiting, 2 * mark)
end
return {'taken'}
