package verify

// advice says what an operator does about a kind of damage. A finding never asks to write to the
// store by hand; what is lost is restored from a backup, or given up by trimming or removing the stream.
func advice(k Kind) string {
	switch k {
	case BadRecord:
		return "Do not start an older novad on this data; restore the metadata from a backup if this version wrote it."
	case WrongFormat:
		return "Use the novad that wrote this data directory."
	case TimelineCutOff:
		return "Repeat novad restore --begin-timeline; of metadata in Pebble, restore the backup again."
	case NameMismatch, StreamIncomplete, ChainIncomplete, CursorOrder, SpanGap, SpanOverlap, SpanStray, SpanAccount:
		return "The metadata contradicts itself: stop the server, keep a copy of the data directory, restore the metadata from a backup, and report this."
	case SpanUnwatched:
		return "These records can be deleted with their slot: copy the stream's records to another stream now, and report this."
	case RefMissing:
		return "The object may be deleted under its records: copy the stream's records to another stream now, and report this."
	case RefStray, RefMismatch:
		return "No record is in danger; the object's bytes are not reclaimed. Report this."
	case ObjectMissing, ObjectCorrupt, ObjectMismatch:
		return "Restore this object from a backup of the bucket; else trim the stream past it, or remove the stream."
	case SlotUnwatched, ObjectUnrecorded:
		return "No record is in danger; the object only takes space. Keep the report; nothing deletes the object by itself."
	case BucketStray:
		return "Novad did not make this and never touches it: remove it, and find out who else writes here."
	case MarkerMissing:
		return "Work will not be done for this record: records may stay for ever, or slots fill up. Report this."
	case MarkerStray, IndexMissing:
		return "No record is in danger; the auditor drops what speaks of nothing when it comes to it. Report this if it stays."
	case MarkerMisplaced:
		return "No auditor looks for it there: its work will not be done. Report this."
	}
	return ""
}
