package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/nova-store/nova/api"
)

// securityFlags are the flags of serve that say who may use it.
type securityFlags struct {
	Insecure      bool   `help:"Allow an address that is not loopback, although nothing guards it."`
	AuthTokenFile string `help:"File of bearer tokens, one a line, of which a request must carry one." placeholder:"FILE"`
	TLSCert       string `name:"tls-cert" help:"Certificate of the server, PEM: serve HTTPS. Read again when the file changes." placeholder:"FILE"`
	TLSKey        string `name:"tls-key" help:"Its key, PEM." placeholder:"FILE"`
	TLSClientCA   string `name:"tls-client-ca" help:"Authorities, PEM, of which one must have signed the client's certificate (mTLS)." placeholder:"FILE"`
}

// security is what the flags come to.
type security struct {
	guard *api.Guard  // nil: everybody may
	tls   *tls.Config // nil: plain HTTP
}

// open reads the files. Every error is a refusal at start-up.
func (f *securityFlags) open(log *slog.Logger) (security, error) {
	var s security
	var tokens []string
	var err error
	if f.AuthTokenFile != "" {
		if tokens, err = api.ReadTokens(f.AuthTokenFile); err != nil {
			return s, usagef("--auth-token-file: %w", err)
		}
	}
	switch {
	case (f.TLSCert == "") != (f.TLSKey == ""):
		return s, usagef("--tls-cert and --tls-key go together: give both or none")
	case f.TLSClientCA != "" && f.TLSCert == "":
		return s, usagef("--tls-client-ca needs --tls-cert and --tls-key: without TLS no client shows a certificate")
	}
	if f.TLSCert != "" {
		pair := &keyPair{cert: f.TLSCert, key: f.TLSKey, log: log}
		if _, err := pair.load(); err != nil {
			return s, usagef("--tls-cert and --tls-key: %w", err)
		}
		s.tls = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: pair.get, NextProtos: []string{"h2", "http/1.1"}}
	}
	if f.TLSClientCA != "" {
		if s.tls.ClientCAs, err = readAuthorities(f.TLSClientCA); err != nil {
			return s, usagef("--tls-client-ca: %w", err)
		}
		// Not required at the handshake: probes come without one, and a token will do where there are tokens. The guard decides.
		s.tls.ClientAuth = tls.VerifyClientCertIfGiven
	}
	if len(tokens) > 0 || f.TLSClientCA != "" {
		s.guard = api.NewGuard(tokens, f.TLSClientCA != "")
	}
	return s, nil
}

// checkListen refuses an address that others could reach, unless something guards it or that is wanted.
func (f *securityFlags) checkListen(listen string) error {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return usagef("--listen=%s: %w", listen, err)
	}
	ip, err := netip.ParseAddr(host)
	loopback := host == "localhost" || err == nil && ip.IsLoopback()
	if !loopback && !f.Insecure && f.AuthTokenFile == "" && f.TLSClientCA == "" {
		return usagef("--listen=%s is not a loopback address, and nothing guards this interface: give --auth-token-file, or --tls-client-ca, or --insecure if that is what you want", listen)
	}
	return nil
}

// readAuthorities reads a file of PEM certificates.
func readAuthorities(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate in PEM", file)
	}
	return pool, nil
}

// keyPair is a certificate that is replaced on disk while the server runs.
type keyPair struct {
	cert, key string
	log       *slog.Logger

	mu      sync.Mutex
	changed time.Time
	loaded  *tls.Certificate
}

// get is tls.Config.GetCertificate. A pair that is unreadable for now, since it is being replaced, leaves the one before.
func (k *keyPair) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c, err := k.load()
	if err != nil {
		k.log.Warn("the certificate cannot be read again, the one before stays in use", "file", k.cert, "error", err)
	}
	if c == nil {
		return nil, errors.New("no certificate")
	}
	return c, nil
}

// load reads the pair where the certificate's file changed. With an error it returns the pair before.
func (k *keyPair) load() (*tls.Certificate, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	fi, err := os.Stat(k.cert)
	if err != nil {
		return k.loaded, err
	}
	if k.loaded != nil && fi.ModTime().Equal(k.changed) {
		return k.loaded, nil
	}
	pair, err := tls.LoadX509KeyPair(k.cert, k.key)
	if err != nil {
		return k.loaded, err
	}
	k.loaded, k.changed = &pair, fi.ModTime()
	return k.loaded, nil
}
