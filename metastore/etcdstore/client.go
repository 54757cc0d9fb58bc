package etcdstore

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

// Scheme begins the address of a store: etcd://HOST:PORT,HOST:PORT/PREFIX.
const Scheme = "etcd://"

// DefaultPrefix is the prefix of an address without one.
const DefaultPrefix = "nova"

// Address is where a store is.
type Address struct {
	// Endpoints are HOST:PORT of members.
	Endpoints []string
	// Prefix of all keys, which ends in a slash.
	Prefix string
}

var prefixForm = regexp.MustCompile(`^[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*$`)

// ParseAddress reads etcd://HOST[:PORT],HOST[:PORT]…[/PREFIX]. The port is 2379 by default, the prefix nova.
func ParseAddress(text string) (Address, error) {
	rest, ok := strings.CutPrefix(text, Scheme)
	if !ok {
		return Address{}, fmt.Errorf("%q does not begin with %s", text, Scheme)
	}
	hosts, prefix, _ := strings.Cut(rest, "/")
	prefix = strings.TrimSuffix(prefix, "/")
	if prefix == "" {
		prefix = DefaultPrefix
	}
	if !prefixForm.MatchString(prefix) || len(prefix) >= MaxPrefix {
		return Address{}, fmt.Errorf("%q: the prefix must be names of letters, digits and ._- joined by slashes, below %d bytes", text, MaxPrefix)
	}
	a := Address{Prefix: prefix + "/"}
	for host := range strings.SplitSeq(hosts, ",") {
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), "2379")
		}
		name, port, err := net.SplitHostPort(host)
		if err != nil || name == "" || port == "" || strings.ContainsAny(host, "@?#% ") {
			return Address{}, fmt.Errorf("%q: members must be HOST or HOST:PORT, joined by commas", text)
		}
		a.Endpoints = append(a.Endpoints, host)
	}
	return a, nil
}

// ClientConfig is how to reach a cluster.
type ClientConfig struct {
	// Endpoints are HOST:PORT of members. A call goes to the next of them that is connected.
	Endpoints []string
	// TLS, if not nil, encrypts, and shows a certificate where it holds one.
	TLS *tls.Config
	// Username and Password, if not empty, authenticate.
	Username, Password string
	// DialOptions are added to those of the client.
	DialOptions []grpc.DialOption
}

// maxAnswer bounds an answer, in bytes: DefaultMaxOps values of the largest request that etcd takes by default.
const maxAnswer = 256 << 20

// NewClient returns a client that sends each request once.
func NewClient(c ClientConfig) (*clientv3.Client, error) {
	if len(c.Endpoints) == 0 {
		return nil, errors.New("etcd: no endpoints")
	}
	scheme := "http://"
	if c.TLS != nil {
		scheme = "https://"
	}
	endpoints := make([]string, len(c.Endpoints))
	for i, e := range c.Endpoints {
		endpoints[i] = scheme + e
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints:   endpoints,
		DialTimeout: 5 * time.Second,
		// A member that vanished without a word is noticed after their sum. gRPC allows no less than 10 s.
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
		MaxCallRecvMsgSize: maxAnswer,
		TLS:                c.TLS,
		Username:           c.Username,
		Password:           c.Password,
		// 1 is a single try. 0 would be a hundred, transactions included: see the package's comment.
		MaxUnaryRetries: 1,
		DialOptions:     c.DialOptions,
		// Each failed call is logged by whoever made it.
		Logger: zap.NewNop(),
	})
	if err != nil {
		return nil, fmt.Errorf("etcd client: %w", err)
	}
	return client, nil
}
