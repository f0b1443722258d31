package main

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cabine-pix/cabine/libs/icom/icomtest"
	"github.com/cabine-pix/cabine/libs/icom/spitest"
	"github.com/cabine-pix/cabine/libs/pix"
	"github.com/cabine-pix/cabine/libs/signature"
	"github.com/cabine-pix/cabine/libs/signature/signaturetest"
)

// identityValidity is how long the certificates of signatures are in force.
const identityValidity = 365 * 24 * time.Hour

// signatureFiles are the PEM files of one signer.
type signatureFiles struct {
	Key         string `json:"key"`
	Certificate string `json:"certificate"`
}

// participantFile is one entry of --participants.
type participantFile struct {
	ISPB    pix.ISPB `json:"ispb"`
	Balance string   `json:"balance"` // "1000.00"
	Virtual bool     `json:"virtual"`
	Closed  bool     `json:"closed"`
	// Certificate is a PEM file with which the participant signs. Without it a key is made for it.
	Certificate string `json:"certificate"`
}

// defineSPI adds the flags of the SPI behind the bank.
func (opt *options) defineSPI(fs *flag.FlagSet) {
	c := &opt.spi
	fs.Func("participant", "ISPB=saldo, como 12345678=1000000.00, com ,virtual ou ,closed se for o caso: "+
		"abre uma conta PI e liga o SPI; pode repetir", func(s string) error {
		p, err := parseParticipant(s)
		opt.members = append(opt.members, p)
		return err
	})
	fs.Func("participants", "arquivo JSON com uma lista de participantes: ispb, balance, virtual, closed, certificate", opt.readParticipants)
	fs.Func("spi-faults", "arquivo JSON com uma lista de falhas do SPI: at, do, rate, delay; "+
		"nos arquivos de lançamentos, at é entry (drop, repeat, alter, invent), statement (falsify, delay, drop) ou download (cut, drop, delay)", func(path string) error {
		return readJSON(path, &c.Faults)
	})
	fs.DurationVar(&c.SettleWithin, "settle-within", 40*time.Second, "tempo de AccptncDtTm até AB03")
	fs.DurationVar(&c.ScheduledWithin, "scheduled-within", 45*time.Minute, "o mesmo para pagamentos agendados (PAGAGD)")
	fs.DurationVar(&c.OrderWithin, "order-within", 0, "tempo de AccptncDtTm a partir do qual a ordem é recusada, AB11; 0: 34/40 de --settle-within")
	fs.DurationVar(&c.Linger, "spi-linger", 0, "por quanto tempo o SPI espera por mais antes de escrever uma mensagem")
	fs.IntVar(&c.Workers, "spi-workers", 2, "goroutines do SPI que leem, e outras tantas que escrevem")
	fs.DurationVar(&c.LongestPeriod, "longest-period", 0, "maior período de um arquivo de lançamentos; 0: 31 dias")
	fs.IntVar(&c.MaxFiles, "max-files", 0, "quantos arquivos de lançamentos ficam guardados; 0: 64")
	fs.IntVar(&c.MaxFileBytes, "max-file-bytes", 0, "quantos bytes eles ocupam no máximo; 0: 256 MiB")
	fs.BoolVar(&c.WrapSignatures, "wrap-signatures", false, "quebra as assinaturas em linhas, como o SPI faz")
	fs.BoolVar(&c.RefuseRepeats, "refuse-repeats", false, "responde DUPL à mesma ordem repetida")
	fs.BoolVar(&c.RefByMsgID, "ref-by-msg-id", false, "indica mensagens recusadas pelo MsgId, não pelo PI-ResourceId")
}

func parseParticipant(s string) (participantFile, error) {
	ispb, rest, ok := strings.Cut(s, "=")
	if !ok {
		return participantFile{}, errors.New("quero ISPB=saldo")
	}
	balance, flags, _ := strings.Cut(rest, ",")
	p := participantFile{ISPB: pix.ISPB(ispb), Balance: balance, Virtual: flags == "virtual", Closed: flags == "closed"}
	if flags != "" && !p.Virtual && !p.Closed {
		return p, fmt.Errorf("%q: quero virtual ou closed", flags)
	}
	return p, p.validate()
}

func (p participantFile) validate() error {
	_, errISPB := pix.ParseISPB(string(p.ISPB))
	_, errBalance := pix.ParseAmount(p.Balance)
	return errors.Join(errISPB, errBalance)
}

func (opt *options) readParticipants(path string) error {
	var members []participantFile
	if err := readJSON(path, &members); err != nil {
		return err
	}
	for _, p := range members {
		if err := p.validate(); err != nil {
			return err
		}
	}
	opt.members = append(opt.members, members...)
	return nil
}

func readJSON(path string, v any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, v)
}

// openSPI makes the SPI of the flags, and tells its files in line. It makes keys in the --pki-dir for those who have none.
func (opt *options) openSPI(line *ready) (*spitest.SPI, error) {
	cfg := opt.spi
	cfg.Seed = opt.bank.Seed
	files, cert, err := identity(opt.pkiDir, pix.SPI)
	if err != nil {
		return nil, err
	}
	key, err := signature.LoadKey(files.Key)
	if err != nil {
		return nil, err
	}
	if cfg.Signer, err = signature.FromCertificate(key, cert); err != nil {
		return nil, err
	}
	line.SPI, line.Signatures = files.Certificate, make(map[pix.ISPB]signatureFiles)
	for _, m := range opt.members {
		p := spitest.Participant{ISPB: m.ISPB, Virtual: m.Virtual, Closed: m.Closed}
		if p.Balance, err = pix.ParseAmount(m.Balance); err != nil {
			return nil, err
		}
		switch {
		case m.Certificate != "":
			if p.Certificates, err = signature.LoadCertificates(m.Certificate); err != nil {
				return nil, err
			}
			line.Signatures[m.ISPB] = signatureFiles{Certificate: m.Certificate}
		case !m.Virtual:
			files, cert, err := identity(opt.pkiDir, m.ISPB)
			if err != nil {
				return nil, err
			}
			p.Certificates, line.Signatures[m.ISPB] = []*x509.Certificate{cert}, files
		}
		cfg.Participants = append(cfg.Participants, p)
	}
	return spitest.New(cfg)
}

// identity reads the key and certificate of a signer out of a directory of its own, or makes them there.
func identity(pkiDir string, ispb pix.ISPB) (signatureFiles, *x509.Certificate, error) {
	dir := filepath.Join(pkiDir, "signature", string(ispb))
	files := signatureFiles{
		Key: filepath.Join(dir, signaturetest.KeyFile), Certificate: filepath.Join(dir, signaturetest.CertificateFile),
	}
	if _, err := os.Stat(files.Certificate); errors.Is(err, fs.ErrNotExist) {
		made, err := signaturetest.New(string(ispb), time.Now().Add(-time.Hour), time.Now().Add(identityValidity))
		if err != nil {
			return files, nil, err
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return files, nil, err
		}
		_, _, err = made.Write(dir)
		return files, made.Certificate, err
	}
	certs, err := signature.LoadCertificates(files.Certificate)
	if err != nil {
		return files, nil, err
	}
	return files, certs[0], nil
}

// behind puts the SPI behind the bank that cfg describes.
func behind(cfg icomtest.Config, spi *spitest.SPI) icomtest.Config {
	cfg.OnReceive, cfg.Control = spi.Receive, spi.Control()
	return cfg
}
