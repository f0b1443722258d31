package core_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cabine-pix/cabine/libs/lease"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/services/internal/core"
)

// sample has every section that core offers.
type sample struct {
	core.Base `koanf:",squash"`
	Redis     core.RedisConfig     `koanf:"redis"`
	Postgres  core.PostgresConfig  `koanf:"postgres"`
	NATS      core.NATSConfig      `koanf:"nats"`
	ICOM      core.ICOMConfig      `koanf:"icom"`
	Lease     core.LeaseConfig     `koanf:"lease"`
	Transport core.TransportConfig `koanf:"transport"`
	Throttle  core.ThrottleConfig  `koanf:"throttle"`
	Cache     core.CacheConfig     `koanf:"cache"`
	Queue     core.QueueConfig     `koanf:"queue"`
}

func defaults() sample {
	return sample{
		Base: core.DefaultBase(), Redis: core.DefaultRedis(), Postgres: core.DefaultPostgres(), NATS: core.DefaultNATS(), ICOM: core.DefaultICOM(),
		Lease: core.DefaultLease(), Transport: core.DefaultTransport(), Throttle: core.DefaultThrottle(),
		Cache: core.DefaultCache(), Queue: core.DefaultQueue(),
	}
}

// all judges every section.
func (s sample) all() error {
	return errors.Join(s.Validate(), s.Redis.Validate(), s.Postgres.Validate(), s.NATS.Validate(), s.ICOM.Validate(), s.Lease.Validate(),
		s.Transport.Validate(), s.Throttle.Validate(), s.Cache.Validate(), s.Queue.Validate())
}

func file(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func load(t *testing.T, yaml string, environ ...string) (sample, []string, error) {
	t.Helper()
	src := core.Source{Environ: environ}
	if yaml != "" {
		src.File = file(t, "config.yaml", yaml)
	}
	return core.Load(defaults(), src)
}

func TestLoadDefaults(t *testing.T) {
	t.Parallel()
	cfg, warnings, err := load(t, "")
	require.NoError(t, err)
	require.Empty(t, warnings)
	require.Equal(t, defaults(), cfg)
	require.NoError(t, cfg.Throttle.Validate())
	require.NoError(t, cfg.Cache.Validate())
	require.NoError(t, cfg.Queue.Validate())
	require.NoError(t, cfg.Lease.Validate())
	require.NoError(t, cfg.Validate())
}

func TestLoadOwnersNames(t *testing.T) {
	t.Parallel()
	cfg, warnings, err := load(t, "",
		"ICOM_MAX_SLOTS=3", "ICOM_CPM_MAX_SLOTS=6", "ICOM_CSM_MAX_SLOTS=5",
		"REDIS_HOST=redis.internal", "REDIS_PORT=6380", "REDIS_PASSWORD=s3cr3t", "REDIS_TLS=true", "LOG_LEVEL=warn",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4318", "OTEL_TRACES_SAMPLE_RATE=0.1", "OTEL_SERVICE_NAME=x",
		"THROTTLE_DISABLED=true", "THROTTLE_LIMIT=200", "THROTTLE_TTL_MS=30000", "TRUST_PROXY_HOPS=2",
		"CACHE_DEFAULT_TTL=45", "QUEUE_CONCURRENCY_DEFAULT=7", "PATH=/bin", "EMPTY=")
	require.NoError(t, err)
	require.Equal(t, []string{"OTEL_ variables are set; this build exports no traces"}, warnings)
	want := defaults()
	want.ICOM.MaxSlots, want.ICOM.CPM.MaxSlots, want.ICOM.CSM.MaxSlots = 3, 6, 5
	want.Redis.Host, want.Redis.Port, want.Redis.Password, want.Redis.TLS = "redis.internal", 6380, "s3cr3t", true
	want.Log.Level = slog.LevelWarn
	want.OTel = core.OTelConfig{Endpoint: "http://collector:4318", SampleRate: 0.1}
	want.Throttle = core.ThrottleConfig{Disabled: true, Limit: 200, TTL: 30 * time.Second, TrustProxyHops: 2}
	want.Cache.DefaultTTL = 45 * time.Second
	want.Queue.Concurrency = 7
	require.Equal(t, want, cfg)
}

func TestLoadFileAndEnvironment(t *testing.T) {
	t.Parallel()
	cfg, _, err := load(t, `
replica: a
log: {level: debug}
redis:
  host: from-file
  port: 7000
icom:
  ispb: "00038166"
  cpm: {limit: 5, enabled: false}
lease:
  ttl: 18s
transport:
  plugin: /bin/true
  args: [a, b]
  env: {LANG: C, HOME_DIR: /x}
admin:
`, "CABINE_REDIS_PORT=7001", "CABINE_LEASE_BANK_HOLD=7500ms", "CABINE_TRANSPORT_ARGS=c, d", "CABINE_TRANSPORT_ENV=A=1,B=2", "CABINE_REPLICA=")
	require.NoError(t, err)
	require.Equal(t, "a", cfg.Replica)
	require.Equal(t, slog.LevelDebug, cfg.Log.Level)
	require.Equal(t, "from-file", cfg.Redis.Host)
	require.Equal(t, 7001, cfg.Redis.Port, "the environment goes over the file")
	require.Equal(t, 4, cfg.Redis.PoolSize, "what nobody says has its default")
	require.Equal(t, 5, cfg.ICOM.CPM.Limit)
	require.False(t, cfg.ICOM.CPM.Enabled)
	require.Equal(t, 18*time.Second, cfg.Lease.TTL)
	require.Equal(t, 7500*time.Millisecond, cfg.Lease.BankHold)
	require.Equal(t, []string{"c", "d"}, cfg.Transport.Args)
	require.Equal(t, map[string]string{"A": "1", "B": "2", "LANG": "C", "HOME_DIR": "/x"}, cfg.Transport.Env)
	require.Equal(t, ":8081", cfg.Admin.Listen)
}

func TestLoadSecretsFromFiles(t *testing.T) {
	t.Parallel()
	secret := file(t, "secret", "s3cr3t\n")
	for name, c := range map[string]struct{ yaml, env string }{
		"owner's name": {"", "REDIS_PASSWORD_FILE=" + secret},
		"own name":     {"", "CABINE_REDIS_PASSWORD_FILE=" + secret},
		"key":          {"redis: {password_file: " + secret + "}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, _, err := load(t, c.yaml, c.env)
			require.NoError(t, err)
			require.Equal(t, "s3cr3t", cfg.Redis.Password)
		})
	}
}

func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		yaml, env string
		want      string
	}{
		"unknown key":          {"redis: {prot: 1}", "", `unknown key "redis.prot", did you mean "redis.port"?`},
		"unknown top":          {"icmo: {ispb: x}", "", `unknown key "icmo.ispb", did you mean "icom.ispb"?`},
		"file of no secret":    {"redis: {host_file: x}", "", `unknown key "redis.host_file"`},
		"section as value":     {"redis: 6379", "", `"redis" is a section, not a value`},
		"value as section":     {"replica: {a: 1}", "", `unknown key "replica.a"`},
		"no value":             {"redis: {host: }", "", `key "redis.host" has no value`},
		"bare duration":        {"lease: {ttl: 20}", "", "20 is no duration"},
		"wrong type":           {"redis: {port: six}", "", "redis.port"},
		"bad level":            {"log: {level: loud}", "", "loud"},
		"both secret and file": {"redis: {password: a, password_file: /dev/null}", "", "both redis.password and redis.password_file"},
		"missing secret file":  {"redis: {password_file: /does/not/exist}", "", "/does/not/exist"},
		"no yaml":              {"redis: [", "", "config.yaml"},
		"twice":                {"replica: a\nreplica: b", "", "already defined"},
		"env int":              {"", "ICOM_MAX_SLOTS=six", `ICOM_MAX_SLOTS: "six" is no whole number`},
		"env bool":             {"", "REDIS_TLS=perhaps", `REDIS_TLS: "perhaps" is neither true nor false`},
		"env duration":         {"", "CABINE_LEASE_TTL=fast", `CABINE_LEASE_TTL: "fast" is no duration`},
		"env bare duration":    {"", "CABINE_LEASE_TTL=20", `CABINE_LEASE_TTL: "20" is no duration`},
		"env map":              {"", "CABINE_TRANSPORT_ENV=A", "is no list of name=value"},
		"env secret file":      {"", "REDIS_PASSWORD_FILE=/does/not/exist", "REDIS_PASSWORD_FILE: open /does/not/exist"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := load(t, c.yaml, c.env)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestLoadContradiction(t *testing.T) {
	t.Parallel()
	_, _, err := load(t, "", "ICOM_MAX_SLOTS=4", "CABINE_ICOM_MAX_SLOTS=6")
	require.ErrorContains(t, err, "ICOM_MAX_SLOTS and CABINE_ICOM_MAX_SLOTS contradict each other")
	cfg, _, err := load(t, "", "ICOM_MAX_SLOTS=5", "CABINE_ICOM_MAX_SLOTS=5")
	require.NoError(t, err)
	require.Equal(t, 5, cfg.ICOM.MaxSlots)
	_, _, err = load(t, "", "ICOM_MAX_SLOTS=x", "REDIS_PORT=y")
	require.ErrorContains(t, err, "ICOM_MAX_SLOTS")
	require.ErrorContains(t, err, "REDIS_PORT", "all errors at once")
}

func TestLoadWarnsOfMisspeltVariables(t *testing.T) {
	t.Parallel()
	_, warnings, err := load(t, "", "CABINE_REDIS_PROT=1", "CABINE_CONFIG=x")
	require.NoError(t, err)
	require.Equal(t, []string{"CABINE_REDIS_PROT is set and means nothing here; the nearest known name is CABINE_REDIS_PORT"}, warnings)
}

func TestLoadBoundsFiles(t *testing.T) {
	t.Parallel()
	_, _, err := load(t, string(bytes.Repeat([]byte("# x\n"), 300_000)))
	require.ErrorContains(t, err, "is larger than 1048576 bytes")
}

func TestPrintMasksAndLoadsAgain(t *testing.T) {
	t.Parallel()
	cfg, _, err := load(t, "", "REDIS_PASSWORD=s3cr3t", "DATABASE_URL=postgres://app:hunter2@db:5432/pix", "CABINE_TRANSPORT_ENV=API_TOKEN=abc,LANG=C")
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, core.Print(&out, cfg))
	require.NotContains(t, out.String(), "s3cr3t")
	require.NotContains(t, out.String(), "hunter2")
	require.NotContains(t, out.String(), "abc")
	require.Contains(t, out.String(), "postgres://app:[redacted]@db:5432/pix")
	require.Contains(t, out.String(), "LANG: C")
	require.Contains(t, out.String(), "ttl: 20s")
	require.Contains(t, out.String(), "level: INFO")

	again, _, err := load(t, out.String())
	require.NoError(t, err)
	require.Equal(t, cfg.Lease, again.Lease)
	require.Equal(t, cfg.ICOM, again.ICOM)
}

func TestSplitOfSlots(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ n, m, poll, send int }{
		{6, 4, 4, 2}, // the owner's default
		{6, 6, 4, 0}, // "6 + 6 active": two shared
		{6, 5, 4, 1},
		{6, 3, 3, 3},
		{6, 1, 1, 5},
		{5, 4, 4, 1},
		{4, 4, 3, 0},
		{1, 1, 0, 0},
	} {
		cfg := core.DefaultICOM()
		cfg.ISPB, cfg.MaxSlots, cfg.CPM.Limit, cfg.CSM.Enabled = "00038166", c.m, c.n, false
		require.NoError(t, cfg.Validate(), "N=%d m=%d", c.n, c.m)
		require.Equal(t, lease.SetConfig{
			Name: "sem:icom:{cpm:00038166}", Slots: c.n, Floors: map[lease.Class]int{lease.Poll: c.poll, lease.Send: c.send},
		}, cfg.Set(pix.CPM))
		require.Equal(t, c.m, cfg.Pollers(pix.CPM))
		require.Equal(t, []pix.Channel{pix.CPM}, cfg.Channels())
	}
}

func TestSectionsRefuse(t *testing.T) {
	t.Parallel()
	plain := file(t, "plain", "")
	for name, c := range map[string]struct {
		change func(*sample)
		want   string
	}{
		"N too large":    {func(s *sample) { s.ICOM.CPM.Limit = 7 }, "icom.cpm.limit is 7, want 1 to 6"},
		"N too small":    {func(s *sample) { s.ICOM.CSM.Limit = 0 }, "icom.csm.limit is 0, want 1 to 6"},
		"m above N":      {func(s *sample) { s.ICOM.CPM.Limit, s.ICOM.MaxSlots = 5, 6 }, "icom.cpm: max_slots is 6, want 1 to the limit 5"},
		"floors above N": {func(s *sample) { s.ICOM.CPM.PollFloor, s.ICOM.CPM.SendFloor = 4, 3 }, "poll_floor 4 + send_floor 3 = 7, want at most N = 6"},
		"no ISPB":        {func(s *sample) { s.ICOM.ISPB = "1" }, "icom.ispb"},
		"no channel":     {func(s *sample) { s.ICOM.CPM.Enabled, s.ICOM.CSM.Enabled = false, false }, "no channel is enabled"},
		"lease":          {func(s *sample) { s.Lease.TTL = 10 * time.Second }, "TTL is 10s, want at least BankHold 8s"},
		"redis host":     {func(s *sample) { s.Redis.Host = "" }, "redis.host is empty"},
		"redis port":     {func(s *sample) { s.Redis.Port = 70000 }, "redis.port is 70000"},
		"postgres":       {func(s *sample) { s.Postgres.URL = "" }, "postgres: URL is empty"},
		"nats":           {func(s *sample) { s.NATS.URL = "" }, "nats: URL is empty"},
		"plugin":         {func(s *sample) { s.Transport.Plugin = "/does/not/exist" }, "transport.plugin: stat /does/not/exist"},
		"plugin no exec": {func(s *sample) { s.Transport.Plugin = plain }, "is no executable"},
		"replica":        {func(s *sample) { s.Replica = "a b" }, `replica is "a b"`},
		"throttle":       {func(s *sample) { s.Throttle.Limit = 0 }, "throttle.limit is 0"},
		"rate":           {func(s *sample) { s.OTel.SampleRate = 2 }, "otel.traces_sample_rate is 2"},
		"queue":          {func(s *sample) { s.Queue.Concurrency = 0 }, "queue.concurrency_default is 0"},
		"cache":          {func(s *sample) { s.Cache.DefaultTTL = 0 }, "cache.default_ttl is 0s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := defaults()
			s.Redis.Host, s.Postgres.URL, s.NATS.URL = "redis", "postgres://db/pix", "nats://bus:4222"
			s.ICOM.ISPB, s.Transport.Plugin = "00038166", "/bin/sh"
			require.NoError(t, s.all())
			c.change(&s)
			require.ErrorContains(t, s.all(), c.want)
		})
	}
}
