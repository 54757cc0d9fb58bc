package catalog

import "strings"

// IsSettled tells whether an object was written by the auditor: by the settle rewrite, its tail-fill, or gc.
func IsSettled(object string) bool { return strings.HasPrefix(object, settledPrefix) }

// TransitSlot returns the slot whose flight an object holds: the slot itself, or a bundle, whose
// slot holds only the index. ok is false for any other object.
func TransitSlot(object string) (chain ChainID, slot uint64, ok bool) {
	parts := strings.Split(object, "/")
	if len(parts) != 4 || parts[0] != "slot" && parts[0] != "bundle" {
		return ChainID{}, 0, false
	}
	at := parts[3]
	if parts[0] == "bundle" {
		if at, _, ok = strings.Cut(at, "-"); !ok {
			return ChainID{}, 0, false
		}
	}
	epoch, e1 := parseHex16(parts[2])
	slot, e2 := parseHex16(at)
	return ChainID{parts[1], epoch}, slot, e1 == nil && e2 == nil
}
