package dirbucket

import "sync"

// folderSyncs shares the syncs of one folder among those who need one: a sync that
// starts after a change covers that change, whoever made it. Different folders are
// synced side by side.
type folderSyncs struct {
	disk disk
	mu   sync.Mutex
	m    map[string]*folderSync
}

// folderSync is the sync of a folder that runs and the one that is to follow it.
type folderSync struct {
	running, next *syncRound
}

type syncRound struct {
	done chan struct{}
	err  error // valid once done is closed
}

// sync returns after a sync of the folder that started no earlier than this call.
//
// Whoever finds no round that has yet to start opens one, and runs it when the
// one before it has ended; whoever comes meanwhile joins it.
func (s *folderSyncs) sync(path string) error {
	s.mu.Lock()
	f := s.m[path]
	if f == nil {
		if s.m == nil {
			s.m = make(map[string]*folderSync)
		}
		f = &folderSync{}
		s.m[path] = f
	}
	if r := f.next; r != nil {
		s.mu.Unlock()
		<-r.done
		return r.err
	}
	r := &syncRound{done: make(chan struct{})}
	before := f.running
	f.next = r
	s.mu.Unlock()
	if before != nil {
		<-before.done
	}

	s.mu.Lock()
	f.running, f.next = r, nil
	s.mu.Unlock()

	r.err = s.disk.syncDir(path)

	s.mu.Lock()
	f.running = nil
	if f.next == nil {
		delete(s.m, path)
	}
	s.mu.Unlock()
	close(r.done)
	return r.err
}
