package dirbucket

import (
	"context"
	"sync"
)

// keyLocks lets one write (put or delete) of a key happen at a time, in the order
// in which they came, and lets readers wait for the write in the air.
type keyLocks struct {
	mu sync.Mutex
	m  map[string]*keyLock
}

type keyLock struct {
	users int           // who holds the key or waits for it; guarded by keyLocks.mu
	token chan struct{} // of capacity 1: full while the key is held; the runtime queues senders in order
}

// lock takes a key, or returns ctx's error once ctx is done.
func (l *keyLocks) lock(ctx context.Context, key string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.mu.Lock()
	k := l.m[key]
	if k == nil {
		if l.m == nil {
			l.m = make(map[string]*keyLock)
		}
		k = &keyLock{token: make(chan struct{}, 1)}
		l.m[key] = k
	}
	k.users++
	l.mu.Unlock()
	select {
	case k.token <- struct{}{}:
		return nil
	case <-ctx.Done():
		l.leave(key, k)
		return ctx.Err()
	}
}

// unlock gives a key back.
func (l *keyLocks) unlock(key string) {
	l.mu.Lock()
	k := l.m[key]
	l.mu.Unlock()
	<-k.token
	l.leave(key, k)
}

func (l *keyLocks) leave(key string, k *keyLock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k.users--; k.users == 0 {
		delete(l.m, key)
	}
}

// wait returns once every write of the key that was in the air when it was called
// has ended, or with ctx's error.
func (l *keyLocks) wait(ctx context.Context, key string) error {
	l.mu.Lock()
	busy := l.m[key] != nil
	l.mu.Unlock()
	if !busy {
		return nil
	}
	if err := l.lock(ctx, key); err != nil {
		return err
	}
	l.unlock(key)
	return nil
}

// busy returns the keys that are being written, in no order.
func (l *keyLocks) busy() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	keys := make([]string, 0, len(l.m))
	for k := range l.m {
		keys = append(keys, k)
	}
	return keys
}
