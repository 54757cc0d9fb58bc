package sim

import "github.com/tidwall/btree"

// table is an ordered map with fast look-ups: nearly all that is asked of the
// store names whole keys.
type table[V any] struct {
	byKey map[string]V
	order btree.Map[string, V]
}

func (t *table[V]) get(key string) (V, bool) {
	v, ok := t.byKey[key]
	return v, ok
}

// add adds a key that is not there.
func (t *table[V]) add(key string, v V) {
	if t.byKey == nil {
		t.byKey = map[string]V{}
	}
	t.byKey[key] = v
	t.order.Set(key, v)
}

func (t *table[V]) remove(key string) {
	delete(t.byKey, key)
	t.order.Delete(key)
}

func (t *table[V]) len() int { return len(t.byKey) }

// ascend calls f for the keys in [start, end) in order until it returns false;
// an empty end is no bound.
func (t *table[V]) ascend(start, end string, f func(key string, v V) bool) {
	t.order.Ascend(start, func(k string, v V) bool {
		return (end == "" || k < end) && f(k, v)
	})
}
