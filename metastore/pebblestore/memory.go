package pebblestore

// MemoryBytes returns how many bytes Pebble holds at the moment, most of them outside Go's heap: memtables, cached
// blocks (Options.CacheBytes at most) and open tables.
func (s *Store) MemoryBytes() int64 {
	m := s.db.Metrics()
	return m.BlockCache.Size + int64(m.MemTable.Size) + int64(m.MemTable.ZombieSize) + m.FileCache.Size
}
