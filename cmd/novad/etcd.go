package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/nova-store/nova/metastore/etcdstore"
)

// etcdFlags are the flags of serve that say how to reach etcd.
type etcdFlags struct {
	EtcdTLS          bool   `name:"etcd-tls" help:"Reach etcd over TLS. The flags below imply it."`
	EtcdCA           string `name:"etcd-ca" help:"Authorities, PEM, of which one must have signed the members' certificates; else the system's." placeholder:"FILE"`
	EtcdCert         string `help:"Certificate to show to etcd, PEM. Read again for each connection." placeholder:"FILE"`
	EtcdKey          string `help:"Its key, PEM." placeholder:"FILE"`
	EtcdUser         string `help:"User of etcd, with --etcd-password-file." placeholder:"NAME"`
	EtcdPasswordFile string `help:"File with that user's password." placeholder:"FILE"`
}

func (f *etcdFlags) given() bool { return *f != etcdFlags{} }

// etcdConfig is how to open a store on etcd.
type etcdConfig struct {
	address string // as given
	prefix  string
	client  etcdstore.ClientConfig
}

// config reads the files. Every error is a refusal at start-up.
func (f *etcdFlags) config(address string) (*etcdConfig, error) {
	at, err := etcdstore.ParseAddress(address)
	if err != nil {
		return nil, usagef("--metastore: %w", err)
	}
	c := &etcdConfig{address: address, prefix: at.Prefix, client: etcdstore.ClientConfig{Endpoints: at.Endpoints, Username: f.EtcdUser}}
	switch {
	case (f.EtcdCert == "") != (f.EtcdKey == ""):
		return nil, usagef("--etcd-cert and --etcd-key go together: give both or none")
	case (f.EtcdUser == "") != (f.EtcdPasswordFile == ""):
		return nil, usagef("--etcd-user and --etcd-password-file go together: give both or none")
	}
	if f.EtcdPasswordFile != "" {
		text, err := os.ReadFile(f.EtcdPasswordFile)
		if err != nil {
			return nil, usagef("--etcd-password-file: %w", err)
		}
		if c.client.Password = strings.TrimRight(string(text), "\r\n"); c.client.Password == "" {
			return nil, usagef("--etcd-password-file: %s is empty", f.EtcdPasswordFile)
		}
	}
	if f.EtcdTLS || f.EtcdCA != "" || f.EtcdCert != "" {
		c.client.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if f.EtcdCA != "" {
		if c.client.TLS.RootCAs, err = readAuthorities(f.EtcdCA); err != nil {
			return nil, usagef("--etcd-ca: %w", err)
		}
	}
	if f.EtcdCert != "" {
		if _, err := tls.LoadX509KeyPair(f.EtcdCert, f.EtcdKey); err != nil {
			return nil, usagef("--etcd-cert and --etcd-key: %w", err)
		}
		cert, key := f.EtcdCert, f.EtcdKey
		c.client.TLS.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(cert, key)
			return &pair, err
		}
	}
	return c, nil
}

// open connects, and refuses a cluster that does not do what Nova needs of it.
func (c *etcdConfig) open(ctx context.Context, log *slog.Logger) (*etcdstore.Store, error) {
	client, err := etcdstore.NewClient(c.client)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.address, err)
	}
	store, err := etcdstore.New(client, c.prefix, etcdstore.Options{})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", c.address, err), client.Close())
	}
	if err := store.Probe(ctx, log); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", c.address, err), store.Close())
	}
	return store, nil
}
