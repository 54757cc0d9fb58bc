package star

import (
	"context"
	"errors"
	"sync"

	"github.com/nova-store/nova/catalog"
)

// names caches which id a name leads to. A cached id may be out of date: whoever
// finds that it is not active forgets it and looks the name up once more.
type names struct {
	most int
	mu   sync.Mutex
	ids  map[string]catalog.StreamID
}

func (n *names) init(most int) {
	n.most = most
	n.ids = make(map[string]catalog.StreamID)
}

func (n *names) get(name string) (catalog.StreamID, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	id, ok := n.ids[name]
	return id, ok
}

// put keeps an id; a full cache starts afresh.
func (n *names) put(name string, id catalog.StreamID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.ids) >= n.most {
		clear(n.ids)
	}
	n.ids[name] = id
}

// forget drops a name that still leads to id.
func (n *names) forget(name string, id catalog.StreamID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ids[name] == id {
		delete(n.ids, name)
	}
}

// resolve finds a stream's id by its name.
func (s *Star) resolve(ctx context.Context, name string) (id catalog.StreamID, cached bool, err error) {
	if id, ok := s.names.get(name); ok {
		return id, true, nil
	}
	id, err = s.cat.FindStream(ctx, name)
	if err != nil {
		return 0, false, err
	}
	s.names.put(name, id)
	return id, false, nil
}

// view reads the records of the stream that the name leads to now.
func (s *Star) view(ctx context.Context, name string) (catalog.StreamView, error) {
	for {
		id, cached, err := s.resolve(ctx, name)
		if err != nil {
			return catalog.StreamView{}, err
		}
		view, err := s.cat.ReadStream(ctx, id)
		if err == nil || !errors.Is(err, catalog.ErrNoStream) {
			return view, err
		}
		s.names.forget(name, id)
		if !cached {
			return catalog.StreamView{}, err
		}
		s.events.Branch("star.name.stale")
	}
}
