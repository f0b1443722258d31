package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/signature/pkcs11"
	"github.com/cabine-pix/cabine/services/internal/core"
	"github.com/cabine-pix/cabine/services/outbound-sender/outbound"
)

// Config is what an outbound-sender is told.
type Config struct {
	core.Base `koanf:",squash"`
	ICOM      core.ICOMConfig      `koanf:"icom"`
	Redis     core.RedisConfig     `koanf:"redis"`
	Lease     core.LeaseConfig     `koanf:"lease"`
	Postgres  core.PostgresConfig  `koanf:"postgres"`
	NATS      core.NATSConfig      `koanf:"nats"`
	Transport core.TransportConfig `koanf:"transport"`
	Queue     core.QueueConfig     `koanf:"queue"`
	Signature SignatureConfig      `koanf:"signature"`
	Messages  core.MessagesConfig  `koanf:"messages"`
	Send      SendConfig           `koanf:"send"`
	Resend    ResendConfig         `koanf:"resend"`
	Traffic   TrafficConfig        `koanf:"traffic"`
}

// SignatureConfig says with what messages are signed: a key in a file or a key in a token.
type SignatureConfig struct {
	// KeyFile holds the private key in PEM. Required, unless the key is in a token.
	KeyFile string `koanf:"key_file" help:"chave privada da assinatura, em PEM"`
	// CertificateFile holds the certificate in PEM, which the SPI knows by issuer and serial number. Required.
	CertificateFile string `koanf:"certificate_file" help:"certificado da assinatura, em PEM"`
	// PKCS11 is the token that holds the key.
	PKCS11 TokenConfig `koanf:"pkcs11"`
}

// TokenConfig names a key in a PKCS#11 token. pkcs11.Config says more of each value.
type TokenConfig struct {
	// Module is the path of the vendor's library. Default: none, the key is in a file.
	Module string `koanf:"module" help:"biblioteca PKCS#11 do fabricante; vazio: a chave está em key_file"`
	// Token is the label of the token, Key that of the key in it.
	Token string `koanf:"token" help:"rótulo do token"`
	Key   string `koanf:"key" help:"rótulo da chave no token"`
	// PIN of the user.
	PIN string `koanf:"pin" secret:"true" help:"PIN do usuário do token"`
	// Sessions bounds the signatures at the same time. Default 16.
	Sessions int `koanf:"sessions" help:"assinaturas simultâneas no token, mais uma"`
}

func (c TokenConfig) key() pkcs11.Config {
	return pkcs11.Config{Module: c.Module, Token: c.Token, PIN: c.PIN, KeyLabel: c.Key, MaxSessions: c.Sessions}.WithDefaults()
}

// Validate names what is missing, or given twice.
func (c SignatureConfig) Validate() error {
	var errs []error
	if c.CertificateFile == "" {
		errs = append(errs, errors.New("signature.certificate_file is empty"))
	}
	switch token := c.PKCS11.Module != ""; {
	case token == (c.KeyFile != ""):
		errs = append(errs, errors.New("signature: want either key_file or pkcs11.module"))
	case token:
		if err := c.PKCS11.key().Validate(); err != nil {
			errs = append(errs, fmt.Errorf("signature.pkcs11: %w", err))
		}
	}
	return errors.Join(errs...)
}

// SendConfig says how messages go out. outbound.Config says more of each value.
type SendConfig struct {
	// Group is how many operations go in one message.
	Group GroupConfig `koanf:"group"`
	// InHand is how many deliveries of the bus one replica holds per channel. Default 400.
	InHand int `koanf:"in_hand" help:"operações em mãos por réplica e canal"`
	// Ahead is how many messages are prepared per permit. Default 10.
	Ahead int `koanf:"ahead" help:"mensagens preparadas por slot enquanto outras estão em voo"`
	// IdleAfter is how long a permit is kept without work. Default 1 s.
	IdleAfter time.Duration `koanf:"idle_after" help:"por quanto tempo o slot é mantido sem trabalho"`
	// HaltMost is the longest pause between two tries while the bank refuses how it is asked. Default 1 min.
	HaltMost time.Duration `koanf:"halt_most" help:"maior intervalo entre tentativas com o canal suspenso (403, 400)"`
	// Refusals is how many messages refused in a row halt the channel. Default 3.
	Refusals int `koanf:"refusals" help:"mensagens recusadas em seguida que suspendem o canal"`
}

// GroupConfig says how many operations go in one message, 1 to 10.
type GroupConfig struct {
	// Pacs008 is for payments. Default 1.
	Pacs008 int `koanf:"pacs008" help:"transações por pacs.008 (1 a 10)"`
	// Pacs002 is for our answers. Default 10.
	Pacs002 int `koanf:"pacs002" help:"respostas por pacs.002 (1 a 10)"`
	// Pacs004 is for returns. Default 1.
	Pacs004 int `koanf:"pacs004" help:"devoluções por pacs.004 (1 a 10)"`
}

// ResendConfig says when the same bytes go out again. outbound.Resend says more of each value.
type ResendConfig struct {
	// Every is the period of the look for what is due. Default 500 ms.
	Every time.Duration `koanf:"every" help:"período da busca por mensagens a reenviar"`
	// First and Most bound the pause, which doubles. Defaults 2 s, 30 s.
	First time.Duration `koanf:"first" help:"pausa após o primeiro envio sem resposta; dobra a cada vez"`
	Most  time.Duration `koanf:"most" help:"maior pausa entre reenvios"`
	// Attempts is how many sends there may be. Default 6.
	Attempts int `koanf:"attempts" help:"envios da mesma mensagem, no máximo; depois só consulta"`
	// LostAfter is when a message without an outcome counts as left behind. Default: receive_timeout + 3.5 s.
	LostAfter time.Duration `koanf:"lost_after" help:"idade em que uma mensagem sem resultado é de réplica morta; 0: calculado"`
}

// Modes of traffic control.
const (
	observe = "observe"
	enforce = "enforce"
)

// TrafficConfig is about the bank's token buckets.
type TrafficConfig struct {
	// Mode is observe (the bank decides, we look) or enforce (we wait before it would say 429). Default observe.
	Mode string `koanf:"mode" help:"observe (só mede) ou enforce (espera a cota antes de enviar)"`
	// Replicas share the participant's bucket in equal parts. Default 1.
	Replicas int `koanf:"replicas" help:"réplicas que dividem a cota do participante"`
}

// slack is what lies between the receive timeout of a POST and the end of its recording.
const slack = 3500 * time.Millisecond

// Defaults returns the configuration of a service that is told only what has no default.
func Defaults() Config {
	out := outbound.Config{}.WithDefaults()
	return Config{
		Base: core.DefaultBase(), ICOM: core.DefaultICOM(), Redis: core.DefaultRedis(), Lease: core.DefaultLease(),
		Postgres: core.DefaultPostgres(), NATS: core.DefaultNATS(), Transport: core.DefaultTransport(), Queue: core.DefaultQueue(),
		Send: SendConfig{
			Group:  GroupConfig{Pacs008: out.Groups.Pacs008, Pacs002: out.Groups.Pacs002, Pacs004: out.Groups.Pacs004},
			InHand: out.InHand, Ahead: out.Ahead, IdleAfter: out.IdleAfter, HaltMost: out.HaltMost, Refusals: out.RefusalsInARow,
		},
		Resend:    ResendConfig{Every: out.Resend.Every, First: out.Resend.First, Most: out.Resend.Most, Attempts: out.Resend.Attempts},
		Traffic:   TrafficConfig{Mode: observe, Replicas: out.Traffic.Replicas},
		Signature: SignatureConfig{PKCS11: TokenConfig{Sessions: pkcs11.Config{}.WithDefaults().MaxSessions}},
	}
}

// Validate names every value that does not fit, with its numbers.
func (c Config) Validate() error {
	_, versions := c.Messages.Known()
	errs := []error{
		versions, c.Base.Validate(), c.ICOM.Validate(), c.Redis.Validate(), c.Lease.Validate(), c.Postgres.Validate(),
		c.NATS.Validate(), c.Transport.Validate(), c.Queue.Validate(), c.Signature.Validate(), c.validateSend(),
	}
	if c.Redis.Timeout > c.Lease.RenewTimeout {
		errs = append(errs, fmt.Errorf("redis.timeout is %v, want at most lease.renew_timeout %v", c.Redis.Timeout, c.Lease.RenewTimeout))
	}
	if errors.Join(errs...) == nil {
		errs = append(errs, c.outbound().WithDefaults().Validate())
		for _, name := range c.ICOM.Channels() {
			errs = append(errs, core.PoolConfig(c.ICOM, c.Lease, name).WithDefaults().Validate())
		}
	}
	return errors.Join(errs...)
}

func (c Config) validateSend() error {
	var errs []error
	if c.Traffic.Mode != observe && c.Traffic.Mode != enforce {
		errs = append(errs, fmt.Errorf("traffic.mode is %q, want %s or %s", c.Traffic.Mode, observe, enforce))
	}
	for _, f := range []struct {
		name string
		n    int
	}{
		{"send.group.pacs008", c.Send.Group.Pacs008},
		{"send.group.pacs002", c.Send.Group.Pacs002},
		{"send.group.pacs004", c.Send.Group.Pacs004},
		{"send.in_hand", c.Send.InHand},
		{"send.ahead", c.Send.Ahead},
		{"send.refusals", c.Send.Refusals},
		{"resend.attempts", c.Resend.Attempts},
		{"traffic.replicas", c.Traffic.Replicas},
	} {
		if f.n < 1 {
			errs = append(errs, fmt.Errorf("%s is %d, want at least 1", f.name, f.n))
		}
	}
	for _, f := range []struct {
		name string
		d    time.Duration
	}{
		{"send.idle_after", c.Send.IdleAfter},
		{"send.halt_most", c.Send.HaltMost},
		{"resend.every", c.Resend.Every},
		{"resend.first", c.Resend.First},
		{"resend.most", c.Resend.Most},
	} {
		if f.d < time.Millisecond {
			errs = append(errs, fmt.Errorf("%s is %v, want at least 1ms", f.name, f.d))
		}
	}
	if least := c.Lease.ReceiveTimeout + time.Second; c.Resend.LostAfter != 0 && c.Resend.LostAfter < least {
		errs = append(errs, fmt.Errorf("resend.lost_after is %v, want at least lease.receive_timeout + 1s = %v", c.Resend.LostAfter, least))
	}
	return errors.Join(errs...)
}

// outbound returns the rules' form of c.
func (c Config) outbound() outbound.Config {
	out := outbound.Config{
		ISPB: pix.ISPB(c.ICOM.ISPB), Workers: make(map[pix.Channel]int),
		Groups: outbound.Groups{Pacs008: c.Send.Group.Pacs008, Pacs002: c.Send.Group.Pacs002, Pacs004: c.Send.Group.Pacs004},
		InHand: c.Send.InHand, Ahead: c.Send.Ahead, IdleAfter: c.Send.IdleAfter,
		Resend: outbound.Resend{
			Every: c.Resend.Every, First: c.Resend.First, Most: c.Resend.Most, Attempts: c.Resend.Attempts, LostAfter: c.Resend.LostAfter,
		},
		Traffic:   outbound.Traffic{Enforce: c.Traffic.Mode == enforce, Replicas: c.Traffic.Replicas},
		HaltFirst: min(5*time.Second, c.Send.HaltMost), HaltMost: c.Send.HaltMost, RefusalsInARow: c.Send.Refusals,
		UserTimeout: c.Lease.UserTimeout, StoreTimeout: c.Postgres.CallTimeout,
		EndPosts: c.Lease.ReceiveTimeout + slack,
	}
	if out.Resend.LostAfter == 0 {
		out.Resend.LostAfter = c.Lease.ReceiveTimeout + slack
	}
	for _, name := range c.ICOM.Channels() {
		out.Workers[name] = min(c.Queue.Concurrency, c.ICOM.Senders(name))
	}
	return out
}
