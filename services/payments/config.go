package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/cabine-pix/cabine/libs/corebank"
	"github.com/cabine-pix/cabine/libs/edge"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/services/internal/core"
	"github.com/cabine-pix/cabine/services/payments/announce"
	"github.com/cabine-pix/cabine/services/payments/api"
	"github.com/cabine-pix/cabine/services/payments/decision"
	"github.com/cabine-pix/cabine/services/payments/inbound"
	"github.com/cabine-pix/cabine/services/payments/watch"
)

// Config is what payments is told.
type Config struct {
	core.Base `koanf:",squash"`
	ICOM      core.ICOMConfig     `koanf:"icom"`
	Postgres  core.PostgresConfig `koanf:"postgres"`
	NATS      core.NATSConfig     `koanf:"nats"`
	Throttle  core.ThrottleConfig `koanf:"throttle"`
	API       APIConfig           `koanf:"api"`
	Signature SignatureConfig     `koanf:"signature"`
	Messages  core.MessagesConfig `koanf:"messages"`
	Core      CoreConfig          `koanf:"core"`
	Inbound   InboundConfig       `koanf:"inbound"`
	Outbox    OutboxConfig        `koanf:"outbox"`
	Watch     WatchConfig         `koanf:"watch"`
}

// APIConfig says how orders are taken. api.Config says more of each value.
type APIConfig struct {
	// Listen is host:port. Default ":8080".
	Listen string `koanf:"listen" help:"endereço da API de ordens"`
	// Tokens are the clients' bearer tokens. Required.
	Tokens string `koanf:"tokens" secret:"true" help:"tokens dos clientes: nome=token, separados por vírgula ou linha"`
	// TLSCert, TLSKey and ClientCA name PEM files. Optional.
	TLSCert  string `koanf:"tls_cert" help:"certificado da API em PEM; vazio: sem TLS"`
	TLSKey   string `koanf:"tls_key" help:"chave do certificado da API em PEM"`
	ClientCA string `koanf:"client_ca" help:"CA dos certificados de cliente (mTLS); vazio: só o token"`
	// RequestTimeout bounds a request. Default 4 s.
	RequestTimeout time.Duration `koanf:"request_timeout" help:"limite de uma requisição"`
	// MaxBody bounds a body in bytes. Default 16 KiB.
	MaxBody int64 `koanf:"max_body" help:"tamanho máximo do corpo, em bytes"`
}

// SignatureConfig says whom to believe.
type SignatureConfig struct {
	// SPICertificates names a PEM file with the certificates that the SPI signs with, the next one too
	// before it is used. Required.
	SPICertificates string `koanf:"spi_certificates" help:"arquivo PEM com os certificados de assinatura do SPI"`
}

// CoreConfig says how the participant's core is asked. decision.Config says more of each value.
type CoreConfig struct {
	// URL that questions are posted to. Required.
	URL string `koanf:"url" help:"endereço do núcleo bancário para decidir créditos (https)"`
	// CAFile holds the authorities of the core's certificate. Default: the system's.
	CAFile string `koanf:"ca_file" help:"certificados de CA do núcleo em PEM; vazio: os do sistema"`
	// Plaintext allows http to another machine. Default false.
	Plaintext bool `koanf:"plaintext" help:"aceita http para outra máquina (só se algo cifra o caminho)"`
	// KeyID and Key sign; PreviousKeyID and PreviousKey are accepted beside them while keys rotate.
	KeyID         string `koanf:"key_id" help:"nome da chave HMAC que assina"`
	Key           string `koanf:"key" secret:"true" help:"chave HMAC, 32 bytes ou mais"`
	PreviousKeyID string `koanf:"previous_key_id" help:"nome da outra chave aceita durante a troca"`
	PreviousKey   string `koanf:"previous_key" secret:"true" help:"a outra chave HMAC"`
	// WhenSilent is reject or accept. Default reject.
	WhenSilent string `koanf:"when_silent" help:"decisão sem o núcleo: reject (AB09) ou accept"`
	// Concurrency bounds the questions under way. Default 128.
	Concurrency int `koanf:"concurrency" help:"consultas simultâneas ao núcleo"`
	// Timeout, AttemptTimeout and Attempts bound a question. Defaults 8 s, 4 s, 2.
	Timeout        time.Duration `koanf:"timeout" help:"limite de uma decisão, tentativas incluídas"`
	AttemptTimeout time.Duration `koanf:"attempt_timeout" help:"limite de uma tentativa"`
	Attempts       int           `koanf:"attempts" help:"tentativas por decisão"`
	// OpenFor is how long the breaker stays open. Default 5 s.
	OpenFor time.Duration `koanf:"open_for" help:"pausa do disjuntor após falhas"`
}

// InboundConfig says how messages of the SPI are taken. inbound.Config says more of each value.
type InboundConfig struct {
	Concurrency     int           `koanf:"concurrency" help:"mensagens em mãos por réplica"`
	Prefetch        int           `koanf:"prefetch" help:"mensagens adiantadas pelo barramento"`
	MaxDeliveries   int           `koanf:"max_deliveries" help:"falhas nossas até a mensagem ir para dead_letters"`
	SettleWithin    time.Duration `koanf:"settle_within" help:"limite do SPI para liquidar (prioritários)"`
	ScheduledWithin time.Duration `koanf:"scheduled_within" help:"limite do SPI para agendados (PAGAGD)"`
	AnswerMargin    time.Duration `koanf:"answer_margin" help:"reserva para a resposta chegar ao SPI"`
	NoEntryCode     string        `koanf:"no_entry_code" help:"código com que o SPI diz, no camt.054, que o lançamento não existe; vazio: nada se conclui disso"`
	DrainTimeout    time.Duration `koanf:"drain_timeout" help:"espera pelas mensagens em mãos ao encerrar"`
}

// OutboxConfig says how what is to be sent is announced. announce.Config says more of each value.
type OutboxConfig struct {
	RepublishEvery time.Duration `koanf:"republish_every" help:"período da busca por linhas não publicadas"`
	RepublishAge   time.Duration `koanf:"republish_age" help:"idade a partir da qual são publicadas"`
	SweepEvery     time.Duration `koanf:"sweep_every" help:"período da busca por linhas publicadas que ninguém envia"`
	StuckAge       time.Duration `koanf:"stuck_age" help:"tempo até serem anunciadas de novo; dobra a cada vez"`
	StuckMost      time.Duration `koanf:"stuck_most" help:"maior intervalo entre dois anúncios"`
	AlarmAttempts  int           `koanf:"alarm_attempts" help:"anúncios repetidos a partir dos quais é erro no log"`
}

// WatchConfig says how open payments are watched. watch.Config says more of each value.
type WatchConfig struct {
	Every        time.Duration `koanf:"every" help:"período da contagem e da consulta"`
	EnquireAfter time.Duration `koanf:"enquire_after" help:"tempo sem desfecho até consultar o SPI (camt.060)"`
	EnquireMost  time.Duration `koanf:"enquire_most" help:"maior intervalo entre consultas do mesmo pagamento"`
	EnquireRows  int           `koanf:"enquire_rows" help:"consultas por período, no máximo"`
}

// Defaults returns the configuration of a service that is told only what has no default.
func Defaults() Config {
	in, out, w := inbound.Config{}.WithDefaults(), announce.Config{}.WithDefaults(), watch.Config{}.WithDefaults()
	d, a := decision.Config{}.WithDefaults(), api.Config{}.WithDefaults()
	pg := core.DefaultPostgres()
	pg.MaxConns = 16 // messages in hand hold one only while they commit
	return Config{
		Base: core.DefaultBase(), ICOM: core.DefaultICOM(), Postgres: pg, NATS: core.DefaultNATS(), Throttle: core.DefaultThrottle(),
		API: APIConfig{Listen: ":8080", RequestTimeout: a.RequestTimeout, MaxBody: a.MaxBody},
		Core: CoreConfig{
			WhenSilent: string(d.WhenSilent), Concurrency: d.Concurrency, Timeout: d.Timeout, AttemptTimeout: d.AttemptTimeout,
			Attempts: d.Attempts, OpenFor: d.OpenFor,
		},
		Inbound: InboundConfig{
			Concurrency: in.Concurrency, Prefetch: in.Prefetch, MaxDeliveries: in.MaxDeliveries, SettleWithin: in.SettleWithin,
			ScheduledWithin: in.ScheduledWithin, AnswerMargin: in.AnswerMargin, DrainTimeout: in.DrainTimeout,
		},
		Outbox: OutboxConfig{
			RepublishEvery: out.RepublishEvery, RepublishAge: out.RepublishAge, SweepEvery: out.SweepEvery,
			StuckAge: out.StuckAge, StuckMost: out.StuckMost, AlarmAttempts: out.AlarmAttempts,
		},
		Watch: WatchConfig{
			Every: w.Every, EnquireAfter: w.EnquireAfter, EnquireMost: w.EnquireMost, EnquireRows: w.EnquireRows,
		},
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
	errs := []error{c.Base.Validate(), c.ICOM.Validate(), c.Postgres.Validate(), c.NATS.Validate(), c.Throttle.Validate()}
	if c.Signature.SPICertificates == "" {
		errs = append(errs, errors.New("signature.spi_certificates is empty: without it no message of the SPI is believed"))
	}
	if errors.Join(errs...) != nil {
		return errors.Join(errs...)
	}
	in, err := c.inbound()
	return errors.Join(
		err, named("inbound", in.WithDefaults().Validate()),
		named("core", c.decision().WithDefaults().Validate()), named("api", c.api().WithDefaults().Validate()),
		named("outbox", c.announce().WithDefaults().Validate()), named("watch", c.watch().WithDefaults().Validate()),
	)
}

func (c Config) ispb() pix.ISPB { return pix.ISPB(c.ICOM.ISPB) }

// inbound returns the rules' form of c; the error is about the versions.
func (c Config) inbound() (inbound.Config, error) {
	in := inbound.Config{
		ISPB: c.ispb(), Concurrency: c.Inbound.Concurrency, Prefetch: c.Inbound.Prefetch, MaxDeliveries: c.Inbound.MaxDeliveries,
		TxTimeout: c.Postgres.CallTimeout, SettleWithin: c.Inbound.SettleWithin, ScheduledWithin: c.Inbound.ScheduledWithin,
		AnswerMargin: c.Inbound.AnswerMargin, NoEntryCode: c.Inbound.NoEntryCode, DrainTimeout: c.Inbound.DrainTimeout,
	}
	var err error
	in.Versions, err = c.Messages.Known()
	return in, err
}

func (c Config) decision() decision.Config {
	d := decision.Config{
		URL: c.Core.URL, Plaintext: c.Core.Plaintext, WhenSilent: decision.Silence(c.Core.WhenSilent),
		Concurrency: c.Core.Concurrency, Timeout: c.Core.Timeout, AttemptTimeout: c.Core.AttemptTimeout,
		Attempts: c.Core.Attempts, OpenFor: c.Core.OpenFor,
		Keys: corebank.Keys{{ID: c.Core.KeyID, Secret: []byte(c.Core.Key)}},
	}
	if c.Core.PreviousKeyID != "" || c.Core.PreviousKey != "" {
		d.Keys = append(d.Keys, corebank.Key{ID: c.Core.PreviousKeyID, Secret: []byte(c.Core.PreviousKey)})
	}
	return d
}

func (c Config) announce() announce.Config {
	return announce.Config{
		ISPB: c.ispb(), BatchRows: min(announce.Config{}.WithDefaults().BatchRows, c.NATS.MaxInFlight),
		RepublishEvery: c.Outbox.RepublishEvery, RepublishAge: c.Outbox.RepublishAge, SweepEvery: c.Outbox.SweepEvery,
		StuckAge: c.Outbox.StuckAge, StuckMost: c.Outbox.StuckMost, AlarmAttempts: c.Outbox.AlarmAttempts,
	}
}

func (c Config) watch() watch.Config {
	return watch.Config{
		ISPB: c.ispb(), Every: c.Watch.Every, EnquireAfter: c.Watch.EnquireAfter, EnquireMost: c.Watch.EnquireMost,
		EnquireRows: c.Watch.EnquireRows,
	}
}

func (c Config) api() api.Config {
	return api.Config{
		ISPB: c.ispb(), Channels: c.ICOM.Channels(), Listen: c.API.Listen, Tokens: c.API.Tokens, MaxBody: c.API.MaxBody, RequestTimeout: c.API.RequestTimeout,
		TLS: api.TLSConfig{Cert: c.API.TLSCert, Key: c.API.TLSKey, ClientCA: c.API.ClientCA},
		Throttle: edge.ThrottleConfig{
			Disabled: c.Throttle.Disabled, Limit: c.Throttle.Limit, Window: c.Throttle.TTL, TrustProxyHops: c.Throttle.TrustProxyHops,
		},
	}
}
