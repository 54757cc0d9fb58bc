package etcdstore

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseAddress(t *testing.T) {
	for text, want := range map[string]Address{
		"etcd://a":                        {[]string{"a:2379"}, "nova/"},
		"etcd://a/":                       {[]string{"a:2379"}, "nova/"},
		"etcd://a:1,b.c:2/p":              {[]string{"a:1", "b.c:2"}, "p/"},
		"etcd://127.0.0.1:1/prod/nova-1/": {[]string{"127.0.0.1:1"}, "prod/nova-1/"},
		"etcd://[::1]:5,[::1]/x":          {[]string{"[::1]:5", "[::1]:2379"}, "x/"},
	} {
		got, err := ParseAddress(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "etcd://", "etcd:///p", "http://a/p", "etcd://a,,b/p", "etcd://a:/p", "etcd://a//p", "etcd://a/p!", "etcd://u@a/p", "etcd://a/p?x=1"} {
		_, err := ParseAddress(text)
		require.Error(t, err, text)
	}
}

func TestPrefixes(t *testing.T) {
	for _, prefix := range []string{"", "\xff", "\xff\xff", string(make([]byte, MaxPrefix+1))} {
		_, err := New(nil, prefix, Options{})
		require.Error(t, err, "%q", prefix)
	}
}
