package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/nova-store/nova/api"
)

// securityFlags are the flags of serve that say who may use it.
type securityFlags struct {
	Insecure      bool   `help:"Allow an address that is not loopback, although nothing guards it."`
	AuthTokenFile string `help:"File of bearer tokens, one a line, of which a request must carry one. Read again when it changes, like the files below." placeholder:"FILE"`
	TLSCert       string `name:"tls-cert" help:"Certificate of the server, PEM: serve HTTPS." placeholder:"FILE"`
	TLSKey        string `name:"tls-key" help:"Its key, PEM." placeholder:"FILE"`
	TLSClientCA   string `name:"tls-client-ca" help:"Authorities, PEM, of which one must have signed the client's certificate (mTLS)." placeholder:"FILE"`
}

// security is what the flags come to.
type security struct {
	guard    *api.Guard  // nil: everybody may
	tls      *tls.Config // nil: plain HTTP
	loopback bool        // only who names this machine as it names itself is answered
}

// open reads the files, which may be replaced while the server runs. Every error is a refusal at start-up.
func (f *securityFlags) open(log *slog.Logger) (security, error) {
	var s security
	var tokens func() []string
	if f.AuthTokenFile != "" {
		r, err := reload("tokens", log, time.Now, func() ([]string, error) { return api.ReadTokens(f.AuthTokenFile) }, f.AuthTokenFile)
		if err != nil {
			return s, usagef("--auth-token-file: %w", err)
		}
		tokens = r.get
		if fi, err := os.Stat(f.AuthTokenFile); err == nil && fi.Mode().Perm()&0o007 != 0 {
			log.Warn("the token file is open to every user of this machine: chmod o= it", "file", f.AuthTokenFile, "mode", fi.Mode().Perm().String())
		}
	}
	switch {
	case (f.TLSCert == "") != (f.TLSKey == ""):
		return s, usagef("--tls-cert and --tls-key go together: give both or none")
	case f.TLSClientCA != "" && f.TLSCert == "":
		return s, usagef("--tls-client-ca needs --tls-cert and --tls-key: without TLS no client shows a certificate")
	}
	if f.TLSCert != "" {
		pair, err := reload("certificate", log, time.Now, func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(f.TLSCert, f.TLSKey)
			return &pair, err
		}, f.TLSCert, f.TLSKey)
		if err != nil {
			return s, usagef("--tls-cert and --tls-key: %w", err)
		}
		s.tls = &tls.Config{
			MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return pair.get(), nil },
		}
	}
	if f.TLSClientCA != "" {
		authorities, err := reload("authorities of clients", log, time.Now, func() (*x509.CertPool, error) { return readAuthorities(f.TLSClientCA) }, f.TLSClientCA)
		if err != nil {
			return s, usagef("--tls-client-ca: %w", err)
		}
		// Not required at the handshake: probes come without one, and a token will do where there are tokens. The guard decides.
		s.tls.ClientAuth = tls.VerifyClientCertIfGiven
		// A session resumed would carry what an authority has verified that is none any more.
		s.tls.SessionTicketsDisabled = true
		each := s.tls.Clone()
		s.tls.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
			now := each.Clone()
			now.ClientCAs = authorities.get()
			return now, nil
		}
	}
	if tokens != nil || f.TLSClientCA != "" {
		s.guard = api.NewGuardOf(tokens, f.TLSClientCA != "")
	}
	s.loopback = s.guard == nil && !f.Insecure
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
