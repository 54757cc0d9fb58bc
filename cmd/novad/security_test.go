package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// cmdCerts: certs DIR writes an authority ca.pem, and NAME.pem with NAME.key that it signed, for server and client; and
// stranger.pem, which another authority signed.
func cmdCerts(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: certs DIR")
	}
	dir := ts.MkAbs(args[0])
	ts.Check(os.MkdirAll(dir, 0o755))
	write := func(name, kind string, der []byte) {
		ts.Check(os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	}
	serial := int64(0)
	issue := func(name string, template, parent *x509.Certificate, signer *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		ts.Check(err)
		serial++
		template.SerialNumber, template.Subject = big.NewInt(serial), pkix.Name{CommonName: name}
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
		if parent == nil {
			parent, signer = template, key
		}
		der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
		ts.Check(err)
		cert, err := x509.ParseCertificate(der)
		ts.Check(err)
		pkcs, err := x509.MarshalPKCS8PrivateKey(key)
		ts.Check(err)
		write(name+".pem", "CERTIFICATE", der)
		write(name+".key", "PRIVATE KEY", pkcs)
		return cert, key
	}
	authority := func() *x509.Certificate {
		return &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	}
	leaf := func(usage x509.ExtKeyUsage) *x509.Certificate {
		return &x509.Certificate{
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{usage},
			IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		}
	}
	ca, caKey := issue("ca", authority(), nil, nil)
	issue("server", leaf(x509.ExtKeyUsageServerAuth), ca, caKey)
	issue("client", leaf(x509.ExtKeyUsageClientAuth), ca, caKey)
	other, otherKey := issue("other", authority(), nil, nil)
	issue("stranger", leaf(x509.ExtKeyUsageClientAuth), other, otherKey)
}
