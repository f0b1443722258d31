package spitest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/cabine-pix/cabine/libs/clock"
	"github.com/cabine-pix/cabine/libs/icom"
	"github.com/cabine-pix/cabine/libs/icom/icomtest"
	"github.com/cabine-pix/cabine/libs/pix"
)

// The limits of the file host.
const (
	hostHeaderTimeout = 10 * time.Second
	hostIdleTimeout   = time.Minute
	hostWriteTimeout  = 5 * time.Minute
	hostHeaderBytes   = 16 << 10
	hostShutdown      = 2 * time.Second
)

const (
	pathDownload = "/api/v1/download/"
	folder       = "extrato"
	extension    = ".zip"
)

// ServeFiles is the file host: it answers on ln, over mutual TLS with the bank's certificates, until ctx ends.
//
//	GET /api/v1/download/{ispb}/extrato/{hash}.zip   200 application/zip
//
// Whose certificate is not of the ISPB in the path gets 403; every other path and name, also a name without its
// extension, 404. Errors are problem documents as on the channels. No limit on requests is known, and none is kept; a
// Host with a port is taken.
func (s *SPI) ServeFiles(ctx context.Context, ln net.Listener, pki *icomtest.PKI) error {
	s.listening(ln)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := &http.Server{
		Handler: http.HandlerFunc(s.serveFile), TLSConfig: pki.ServerConfig(),
		ReadHeaderTimeout: hostHeaderTimeout, IdleTimeout: hostIdleTimeout, WriteTimeout: hostWriteTimeout,
		MaxHeaderBytes: hostHeaderBytes, Protocols: new(http.Protocols),
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	server.Protocols.SetHTTP1(true)
	done := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), hostShutdown)
		defer cancel()
		done <- server.Shutdown(ctx)
	})
	defer stop()
	if err := server.ServeTLS(ln, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("spitest: file host: %w", err)
	}
	if err := <-done; err != nil {
		return fmt.Errorf("spitest: file host: %w", errors.Join(err, server.Close()))
	}
	return nil
}

func (s *SPI) listening(ln net.Listener) {
	addr := ln.Addr().String()
	s.filesAddr.Store(&addr)
}

// FilesURL is where the file host is, "https://127.0.0.1:40123"; empty before ServeFiles.
func (s *SPI) FilesURL() string {
	if addr := s.filesAddr.Load(); addr != nil {
		return "https://" + *addr
	}
	return ""
}

func (s *SPI) serveFile(w http.ResponseWriter, r *http.Request) {
	owner, hash, ok := fileName(r.URL.Path)
	client, err := pix.ParseISPB(r.TLS.PeerCertificates[0].Subject.CommonName)
	switch {
	case !ok:
		s.notFound(w)
		return
	case r.Method != http.MethodGet:
		problem(w, http.StatusMethodNotAllowed, "methodNotAllowed", "Método não permitido")
		return
	case err != nil || client != owner:
		s.shelf.tally(func(f *Files) { f.Forbidden++ })
		problem(w, http.StatusForbidden, icom.ProblemForbidden, "Certificado não autorizado para o participante")
		return
	case !takesAnything(r.Header):
		problem(w, http.StatusNotAcceptable, "notAcceptable", "Formato de resposta não disponível")
		return
	}
	content, n, ok := s.shelf.fetch(owner, hash)
	if !ok {
		s.notFound(w)
		return
	}
	s.hand(w, r, hash, content, n)
}

// fileName reads the path of a file. A name without its extension is none.
func fileName(path string) (owner pix.ISPB, hash string, ok bool) {
	rest, ok := strings.CutPrefix(path, pathDownload)
	parts := strings.Split(rest, "/")
	if !ok || len(parts) != 3 || parts[1] != folder {
		return "", "", false
	}
	hash, ok = strings.CutSuffix(parts[2], extension)
	return pix.ISPB(parts[0]), hash, ok && hash != ""
}

// takesAnything reports whether Accept has */*, which the real host asks for. None at all says the same in HTTP.
func takesAnything(h http.Header) bool {
	accept := strings.Join(h.Values("Accept"), ",")
	return accept == "" || strings.Contains(accept, "*/*")
}

// hand serves a file, as far as the fault rules let it. n is which fetching of the file this is.
func (s *SPI) hand(w http.ResponseWriter, r *http.Request, hash string, content []byte, n int) {
	fault, hit := s.strike(AtDownload, hash, strconv.Itoa(n))
	told, whole := len(content), true
	if hit {
		switch fault.Do {
		case Delay:
			if clock.Sleep(r.Context(), s.cfg.Clock, fault.Delay) != nil {
				return
			}
		case Cut:
			content = content[:len(content)/2]
			told, whole = len(content), false
			s.shelf.tally(func(f *Files) { f.Cut++ })
		case Drop:
			content, whole = content[:len(content)/2], false
			s.shelf.tally(func(f *Files) { f.Broken++ })
		case Repeat, Late, Refuse, Alter, Invent, Falsify:
		}
	}
	if whole {
		// Counted before its last byte is out: who has the file finds it in the report.
		s.shelf.tally(func(f *Files) { f.Downloads++ })
	}
	h := w.Header()
	h.Set("Content-Type", "application/zip")
	h.Set("Content-Length", strconv.Itoa(told))
	// Who left before the end does not miss it.
	_, _ = w.Write(content)
	if len(content) < told {
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}

func (s *SPI) notFound(w http.ResponseWriter) {
	s.shelf.tally(func(f *Files) { f.NotFound++ })
	problem(w, http.StatusNotFound, icom.ProblemNotFound, "Recurso não encontrado")
}

func problem(w http.ResponseWriter, status int, name, title string) {
	w.Header().Set("Content-Type", icom.TypeProblem)
	w.WriteHeader(status)
	// Who left before the answer does not miss it.
	_, _ = w.Write(icom.MarshalProblem(icom.Problem{Type: icom.ProblemType(name), Title: title}))
}
