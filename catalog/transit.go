package catalog

import "strings"

// IsSettled tells whether an object was written by the auditor: by the settle rewrite, its tail-fill, or gc.
func IsSettled(object string) bool { return strings.HasPrefix(object, settledPrefix) }

// TransitSlot returns the slot whose flight an object holds: the slot itself, or a bundle, whose
// slot holds only the index. ok is false for any other object.
func TransitSlot(object string) (chain ChainID, slot uint64, ok bool) {
	if IsSettled(object) {
		return ChainID{}, 0, false
	}
	chain, slot, err := ParseSlotKey(object)
	if err != nil {
		chain, slot, _, err = ParseBundleKey(object)
	}
	return chain, slot, err == nil
}
