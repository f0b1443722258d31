package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cabine-pix/cabine/libs/calendar"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/store"
	"github.com/cabine-pix/cabine/services/internal/core"
	"github.com/cabine-pix/cabine/services/settlement-scheduler/coreevent"
	"github.com/cabine-pix/cabine/services/settlement-scheduler/cycle"
	"github.com/cabine-pix/cabine/services/settlement-scheduler/obligation"
	"github.com/cabine-pix/cabine/services/settlement-scheduler/republish"
	"github.com/cabine-pix/cabine/services/settlement-scheduler/schedule"
)

// Config is what a settlement-scheduler is told.
type Config struct {
	core.Base   `koanf:",squash"`
	ICOM        core.ICOMConfig     `koanf:"icom"`
	Redis       core.RedisConfig    `koanf:"redis"`
	Lease       core.LeaseConfig    `koanf:"lease"`
	Postgres    core.PostgresConfig `koanf:"postgres"`
	NATS        core.NATSConfig     `koanf:"nats"`
	CoreEvents  CoreEventsConfig    `koanf:"core_events"`
	Obligations ObligationsConfig   `koanf:"obligations"`
	Cycles      CyclesConfig        `koanf:"cycles"`
	Ages        AgesConfig          `koanf:"ages"`
	Files       FilesConfig         `koanf:"files"`

	Reconciliation ReconciliationConfig `koanf:"reconciliation"`
}

// CoreEventsConfig says how payment requests of the core are taken from CORE_EVENTS. coreevent.Config says more of each
// value.
type CoreEventsConfig struct {
	// Enabled lets this service take them. Default true.
	Enabled      bool          `koanf:"enabled" help:"recebe ordens que o núcleo publica em core.payment_request.<ispb>"`
	Workers      int           `koanf:"workers" help:"eventos do núcleo registrados ao mesmo tempo por réplica"`
	Batch        int           `koanf:"batch" help:"eventos do núcleo respondidos juntos"`
	MaxBody      int           `koanf:"max_body" help:"tamanho máximo de um evento do núcleo, em bytes"`
	MaxFailures  int           `koanf:"max_failures" help:"falhas nossas até um evento do núcleo ser recusado"`
	DrainTimeout time.Duration `koanf:"drain_timeout" help:"espera pelos eventos em mãos ao encerrar"`
}

// ObligationsConfig says how obligations are announced and written. obligation.Config and republish.Config say more of
// each value.
type ObligationsConfig struct {
	Workers       int           `koanf:"workers" help:"lotes gravados ao mesmo tempo por réplica"`
	Batch         int           `koanf:"batch" help:"obrigações por transação"`
	DrainTimeout  time.Duration `koanf:"drain_timeout" help:"espera pelo que está em mãos ao encerrar"`
	AnnounceEvery time.Duration `koanf:"announce_every" help:"período da busca por obrigações devidas (líder)"`
	AnnounceAgain time.Duration `koanf:"announce_again" help:"tempo até anunciar de novo o que ninguém gravou; dobra a cada vez"`
	AnnounceMost  time.Duration `koanf:"announce_most" help:"maior intervalo entre dois anúncios"`
}

// CyclesConfig says when cycles end and whom their obligations are settled with.
type CyclesConfig struct {
	// Ends are "type=HH:MM" of each banking day, in São Paulo. Default "dia=24:00".
	Ends []string `koanf:"ends" help:"fim dos ciclos em dias úteis, horário de São Paulo: tipo=HH:MM, até 24:00"`
	// Drill is how long cycles are in a drill: they follow each other on every day, Ends and Holidays mean nothing. Default
	// 0, no drill.
	Drill time.Duration `koanf:"drill" help:"só para ensaios: ciclos desta duração, em todos os dias, no lugar de ends"`
	// Holidays are more days without banks, "2027-01-25". Optional.
	Holidays []string `koanf:"holidays" help:"feriados além dos nacionais: AAAA-MM-DD"`
	// Parties are "branch=ISPB": branches of ours that are an indirect participant's. Default none: every obligation is
	// settled with the other participant.
	Parties []string `koanf:"parties" help:"agências de participantes indiretos: agência=ISPB; vazio: por ISPB da contraparte"`
	// Every, Grace, Patience and Recheck are those of cycle.Config.
	Every    time.Duration `koanf:"every" help:"período da verificação (líder)"`
	Grace    time.Duration `koanf:"grace" help:"espera mínima após o fim do ciclo"`
	Patience time.Duration `koanf:"patience" help:"espera máxima por obrigações ainda não gravadas"`
	Recheck  int           `koanf:"recheck" help:"dias em que ciclos fechados são recalculados e comparados quando um líder começa"`
}

// AgesConfig says what is forgotten or given up. schedule.Config says more of each value.
type AgesConfig struct {
	Every       time.Duration `koanf:"every" help:"período da verificação (líder)"`
	Keys        time.Duration `koanf:"idempotency_keys" help:"idade em que respostas de idempotência são esquecidas"`
	DeadLetters time.Duration `koanf:"dead_letters" help:"idade em que dead_letters são esquecidas"`
	Orders      time.Duration `koanf:"orders" help:"idade em que ordens nunca enviadas são rejeitadas (motivo expired)"`
}

// Defaults returns the configuration of a service that is told only what has no default.
func Defaults() Config {
	o, r := obligation.Config{}.WithDefaults(), republish.Config{}.WithDefaults()
	c, a := cycle.Config{}.WithDefaults(), schedule.Config{}.WithDefaults()
	e := coreevent.Config{}.WithDefaults()
	return Config{
		Base: core.DefaultBase(), ICOM: core.DefaultICOM(), Redis: core.DefaultRedis(), Lease: core.DefaultLease(),
		Postgres: core.DefaultPostgres(), NATS: core.DefaultNATS(),
		CoreEvents: CoreEventsConfig{
			Enabled: true, Workers: e.Workers, Batch: e.Batch, MaxBody: e.MaxBody, MaxFailures: e.MaxFailures, DrainTimeout: e.DrainTimeout,
		},
		Obligations: ObligationsConfig{
			Workers: o.Workers, Batch: o.Batch, DrainTimeout: o.DrainTimeout,
			AnnounceEvery: r.Every, AnnounceAgain: r.Again, AnnounceMost: r.Most,
		},
		Cycles: CyclesConfig{Ends: []string{"dia=24:00"}, Every: c.Every, Grace: c.Grace, Patience: c.Patience, Recheck: c.Recheck},
		Ages:   AgesConfig{Every: a.Every, Keys: a.Keys, DeadLetters: a.DeadLetters, Orders: a.Orders},
		Files:  defaultFiles(),

		Reconciliation: defaultReconciliation(),
	}
}

// Validate names every value that does not fit, with its numbers.
func (c Config) Validate() error {
	named := func(section string, err error) error {
		if err == nil {
			return nil
		}
		return fmt.Errorf("%s: %w", section, err)
	}
	_, plan := c.Cycles.plan()
	_, parties := c.Cycles.parties()
	return errors.Join(
		c.Base.Validate(), c.ICOM.Validate(), c.Redis.Validate(), c.Lease.Validate(), c.Postgres.Validate(), c.NATS.Validate(),
		named("cycles", plan), named("cycles", parties), named("cycles", c.cycle().WithDefaults().Validate()),
		named("core_events", c.coreEvent().WithDefaults().Validate()),
		named("obligations", c.obligation().WithDefaults().Validate()), named("obligations", c.republish().WithDefaults().Validate()),
		named("ages", c.schedule().WithDefaults().Validate()),
		named("files", c.Files.Validate()), named("files", c.fileImport().WithDefaults().Validate()),
		named("reconciliation", c.validateReconciliation()),
	)
}

// leadership is the name that all replicas of a participant compete for.
func (c Config) leadership() string { return "settlement:" + c.ICOM.ISPB }

func (c CyclesConfig) plan() (*cycle.Plan, error) {
	days, err := calendar.New(c.Holidays...)
	if err != nil {
		return nil, fmt.Errorf("holidays: %w", err)
	}
	if c.Drill != 0 {
		plan, err := cycle.NewDrill(days, c.Drill)
		if err != nil {
			return nil, fmt.Errorf("drill: %w", err)
		}
		return plan, nil
	}
	ends, err := cycle.ParseEnds(c.Ends)
	if err != nil {
		return nil, fmt.Errorf("ends: %w", err)
	}
	return cycle.NewPlan(days, ends)
}

func (c CyclesConfig) parties() (store.Parties, error) {
	parties := store.Parties{}
	for _, text := range c.Parties {
		branch, ispb, ok := strings.Cut(text, "=")
		if _, twice := parties[branch]; !ok || twice {
			return nil, fmt.Errorf("parties: %q is no branch=ISPB, or is there twice", text)
		}
		parties[branch] = pix.ISPB(ispb)
	}
	if err := parties.Validate(); err != nil {
		return nil, fmt.Errorf("parties: %w", err)
	}
	return parties, nil
}

func (c Config) coreEvent() coreevent.Config {
	return coreevent.Config{
		ISPB: pix.ISPB(c.ICOM.ISPB), Channels: c.ICOM.Channels(), Workers: c.CoreEvents.Workers, Batch: min(c.CoreEvents.Batch, c.NATS.MaxInFlight),
		MaxBody: c.CoreEvents.MaxBody, MaxFailures: c.CoreEvents.MaxFailures, DrainTimeout: c.CoreEvents.DrainTimeout,
		TxTimeout: c.Postgres.CallTimeout,
	}
}

func (c Config) obligation() obligation.Config {
	return obligation.Config{
		Workers: c.Obligations.Workers, Batch: c.Obligations.Batch, DrainTimeout: c.Obligations.DrainTimeout,
		TxTimeout: c.Postgres.CallTimeout,
	}
}

func (c Config) republish() republish.Config {
	return republish.Config{
		Leadership: c.leadership(), Every: c.Obligations.AnnounceEvery, Again: c.Obligations.AnnounceAgain, Most: c.Obligations.AnnounceMost,
		Batch: min(republish.Config{}.WithDefaults().Batch, c.NATS.MaxInFlight),
	}
}

func (c Config) cycle() cycle.Config {
	return cycle.Config{
		Leadership: c.leadership(), Every: c.Cycles.Every, Grace: c.Cycles.Grace, Patience: c.Cycles.Patience, Recheck: c.Cycles.Recheck,
	}
}

func (c Config) schedule() schedule.Config {
	return schedule.Config{
		Leadership: c.leadership(), Every: c.Ages.Every, Keys: c.Ages.Keys, DeadLetters: c.Ages.DeadLetters, Orders: c.Ages.Orders,
	}
}
