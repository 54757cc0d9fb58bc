package main

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// So many connections are accepted; the next one when one of them is closed, once; and none after the end.
func TestConnectionsAreBounded(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := boundConnections(inner, 2)
	accepted := make(chan net.Conn)
	ended := make(chan error, 1)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				ended <- err
				return
			}
			accepted <- c
		}
	}()
	for range 4 {
		c, err := net.Dial("tcp", inner.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
	}
	first, second := <-accepted, <-accepted
	require.Len(t, l.(*boundedListener).slots, 2)
	select {
	case <-accepted:
		t.Fatal("a third one")
	default:
	}
	require.NoError(t, first.Close())
	require.Error(t, first.Close(), "the slot is given back once")
	third := <-accepted
	require.Len(t, l.(*boundedListener).slots, 2)
	require.NoError(t, l.Close())
	require.ErrorIs(t, <-ended, net.ErrClosed)
	require.NoError(t, second.Close())
	require.NoError(t, third.Close())
	require.Empty(t, l.(*boundedListener).slots)
}
