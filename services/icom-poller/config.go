package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/services/icom-poller/inbound"
	"github.com/cabine-pix/cabine/services/internal/core"
)

// Config is what an icom-poller is told.
type Config struct {
	core.Base `koanf:",squash"`
	ICOM      core.ICOMConfig      `koanf:"icom"`
	Redis     core.RedisConfig     `koanf:"redis"`
	Lease     core.LeaseConfig     `koanf:"lease"`
	Postgres  core.PostgresConfig  `koanf:"postgres"`
	NATS      core.NATSConfig      `koanf:"nats"`
	Transport core.TransportConfig `koanf:"transport"`
	Poll      PollConfig           `koanf:"poll"`
	Publish   PublishConfig        `koanf:"publish"`
}

// Placements.
const (
	spread  = "spread"
	leading = "leader"
)

// Schedules.
const (
	continuous = "continuous"
	aligned    = "aligned"
)

// PollConfig says how the streams are read. inbound.Config says more of each value.
type PollConfig struct {
	// Placement is spread (every replica takes its share) or leader (one replica takes all). Default spread.
	Placement string `koanf:"placement" help:"spread: cada réplica leva a sua parte; leader: só a réplica líder lê"`
	// Schedule is continuous, as the ICOM wants it, or aligned with the Unix clock. Default continuous.
	Schedule string `koanf:"schedule" help:"continuous (ICOM) ou aligned (relógio Unix)"`
	// Floor is the least time between two polls of a bank that answers early with nothing. Default 200 ms.
	Floor time.Duration `koanf:"floor" help:"intervalo mínimo entre leituras vazias que voltam cedo"`
	// Cycle and Stagger of the aligned schedule. Defaults 4167 ms, 694 ms.
	Cycle   time.Duration `koanf:"cycle" help:"período por slot, no modo aligned"`
	Stagger time.Duration `koanf:"stagger" help:"defasagem entre slots, no modo aligned"`
	// CloseTimeout is the wait for the answer to a DELETE. Default 2 s.
	CloseTimeout time.Duration `koanf:"close_timeout" help:"espera pela resposta ao DELETE do stream"`
	// BackoffMost is the longest pause after errors. Default 30 s.
	BackoffMost time.Duration `koanf:"backoff_most" help:"maior pausa após erros"`
	// StoreHold is how long a slot is kept while Postgres does not answer. Default 5 s.
	StoreHold time.Duration `koanf:"store_hold" help:"por quanto tempo o slot é mantido sem Postgres"`
	// IdleAlarm is M: how long nobody may poll a channel before that is critical. Default 2 min.
	IdleAlarm time.Duration `koanf:"idle_alarm" help:"tempo sem nenhum slot ativo até o alarme crítico"`
	// MalformedAttempts is how often an unreadable answer is asked for again. Default 3.
	MalformedAttempts int `koanf:"malformed_attempts" help:"tentativas com a mesma resposta ilegível"`
	// MaxMessageBytes bounds one message. Default 1 MiB, the transport's own bound.
	MaxMessageBytes int `koanf:"max_message_bytes" help:"tamanho máximo de uma mensagem"`
}

// PublishConfig says how messages go on to the bus. inbound.PublisherConfig says more of each value.
type PublishConfig struct {
	RepublishEvery time.Duration `koanf:"republish_every" help:"período da busca por mensagens não publicadas"`
	RepublishAge   time.Duration `koanf:"republish_age" help:"idade a partir da qual são republicadas"`
	SweepEvery     time.Duration `koanf:"sweep_every" help:"período da busca por mensagens publicadas e não concluídas"`
	StuckAge       time.Duration `koanf:"stuck_age" help:"tempo desde a publicação a partir do qual saem de novo"`
	StuckMost      time.Duration `koanf:"stuck_most" help:"maior intervalo entre duas republicações, que dobra a cada vez"`
	AlarmAttempts  int           `koanf:"alarm_attempts" help:"republicações a partir das quais é erro no log; não há limite"`
	QueueRows      int           `koanf:"queue_rows" help:"mensagens em memória por stream"`
}

// Defaults returns the configuration of a service that is told only what has no default.
func Defaults() Config {
	in := inbound.Config{}.WithDefaults()
	return Config{
		Base: core.DefaultBase(), ICOM: core.DefaultICOM(), Redis: core.DefaultRedis(), Lease: core.DefaultLease(),
		Postgres: core.DefaultPostgres(), NATS: core.DefaultNATS(), Transport: core.DefaultTransport(),
		Poll: PollConfig{
			Placement: spread, Schedule: continuous, Floor: 200 * time.Millisecond,
			Cycle: 4167 * time.Millisecond, Stagger: 694 * time.Millisecond,
			CloseTimeout: in.CloseTimeout, BackoffMost: in.BackoffMost, StoreHold: in.StoreHold, IdleAlarm: in.IdleAlarm,
			MalformedAttempts: in.MalformedAttempts, MaxMessageBytes: in.MaxMessageBytes,
		},
		Publish: PublishConfig{
			RepublishEvery: in.Publisher.RepublishEvery, RepublishAge: in.Publisher.RepublishAge,
			SweepEvery: in.Publisher.SweepEvery, StuckAge: in.Publisher.StuckAge, StuckMost: in.Publisher.StuckMost,
			AlarmAttempts: in.Publisher.AlarmAttempts, QueueRows: in.Publisher.QueueRows,
		},
	}
}

func (c PublishConfig) validate() error {
	var errs []error
	for _, f := range []struct {
		name string
		d    time.Duration
	}{
		{"republish_every", c.RepublishEvery},
		{"republish_age", c.RepublishAge},
		{"sweep_every", c.SweepEvery},
		{"stuck_age", c.StuckAge},
		{"stuck_most", c.StuckMost},
	} {
		if f.d < time.Millisecond {
			errs = append(errs, fmt.Errorf("publish.%s is %v, want at least 1ms", f.name, f.d))
		}
	}
	if c.AlarmAttempts < 1 || c.QueueRows < 1 {
		errs = append(errs, fmt.Errorf("publish.alarm_attempts is %d and publish.queue_rows %d, want at least 1", c.AlarmAttempts, c.QueueRows))
	}
	return errors.Join(errs...)
}

// Validate names every value that does not fit, with its numbers.
func (c Config) Validate() error {
	errs := []error{
		c.Base.Validate(), c.ICOM.Validate(), c.Redis.Validate(), c.Lease.Validate(),
		c.Postgres.Validate(), c.NATS.Validate(), c.Transport.Validate(), c.Poll.validate(), c.Publish.validate(),
	}
	if c.Redis.Timeout > c.Lease.RenewTimeout {
		errs = append(errs, fmt.Errorf("redis.timeout is %v, want at most lease.renew_timeout %v", c.Redis.Timeout, c.Lease.RenewTimeout))
	}
	if errors.Join(errs...) == nil {
		in := c.inbound("check").WithDefaults()
		errs = append(errs, in.Validate())
		for _, name := range c.ICOM.Channels() {
			errs = append(errs, core.PoolConfig(c.ICOM, c.Lease, name).WithDefaults().Validate())
		}
	}
	return errors.Join(errs...)
}

func (c PollConfig) validate() error {
	var errs []error
	if c.Placement != spread && c.Placement != leading {
		errs = append(errs, fmt.Errorf("poll.placement is %q, want %s or %s", c.Placement, spread, leading))
	}
	if c.Schedule != continuous && c.Schedule != aligned {
		errs = append(errs, fmt.Errorf("poll.schedule is %q, want %s or %s", c.Schedule, continuous, aligned))
	}
	if c.Schedule == aligned {
		if err := c.aligned().Validate(); err != nil {
			errs = append(errs, fmt.Errorf("poll: %w", err))
		}
	}
	for _, f := range []struct {
		name string
		d    time.Duration
	}{
		{"floor", c.Floor},
		{"close_timeout", c.CloseTimeout},
		{"backoff_most", c.BackoffMost},
		{"store_hold", c.StoreHold},
		{"idle_alarm", c.IdleAlarm},
	} {
		if f.d < time.Millisecond {
			errs = append(errs, fmt.Errorf("poll.%s is %v, want at least 1ms", f.name, f.d))
		}
	}
	if c.MalformedAttempts < 1 || c.MaxMessageBytes < 1 {
		errs = append(errs, fmt.Errorf("poll.malformed_attempts is %d and poll.max_message_bytes %d, want at least 1",
			c.MalformedAttempts, c.MaxMessageBytes))
	}
	return errors.Join(errs...)
}

func (c PollConfig) aligned() inbound.Aligned {
	return inbound.Aligned{Cycle: c.Cycle, Stagger: c.Stagger, Floor: min(c.Floor, 100*time.Millisecond)}
}

// inbound returns the rules' form of c.
func (c Config) inbound(owner string) inbound.Config {
	in := inbound.Config{
		ISPB: pix.ISPB(c.ICOM.ISPB), Owner: owner, Workers: make(map[pix.Channel]int),
		OnlyLeading:  c.Poll.Placement == leading,
		Schedule:     inbound.Continuous{Floor: c.Poll.Floor},
		CloseTimeout: c.Poll.CloseTimeout,
		// A poll, which may wait for its connection, then a DELETE and the release.
		EndPolls:    c.Lease.ReceiveTimeout + c.Poll.CloseTimeout + 1500*time.Millisecond,
		BackoffMost: c.Poll.BackoffMost, StoreHold: c.Poll.StoreHold, StoreTimeout: c.Postgres.CallTimeout,
		UserTimeout: c.Lease.UserTimeout,
		IdleAlarm:   c.Poll.IdleAlarm, MalformedAttempts: c.Poll.MalformedAttempts, MaxMessageBytes: c.Poll.MaxMessageBytes,
		Publisher: inbound.PublisherConfig{
			RepublishEvery: c.Publish.RepublishEvery, RepublishAge: c.Publish.RepublishAge,
			SweepEvery: c.Publish.SweepEvery, StuckAge: c.Publish.StuckAge, StuckMost: c.Publish.StuckMost,
			AlarmAttempts: c.Publish.AlarmAttempts, QueueRows: c.Publish.QueueRows,
			BatchRows: min(inbound.BatchRows, c.NATS.MaxInFlight),
		},
	}
	if c.Poll.Schedule == aligned {
		in.Schedule = c.Poll.aligned()
	}
	for _, name := range c.ICOM.Channels() {
		in.Workers[name] = c.ICOM.Pollers(name)
	}
	return in
}
