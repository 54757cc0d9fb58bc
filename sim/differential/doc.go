// Package differential holds one test: that the simulated store and bucket are no kinder than the real ones.
//
// A history (creates, appends, trims, policies, deletions, time for the auditor, crashes, reopenings) is drawn by
// rapid. The production code plays it twice, under the same scheduler and on virtual time: once on the simulated
// dependencies, with the faults that their contracts allow, and once on Pebble, whose file system in memory loses
// what was not synced when the process crashes, and a directory. Both must end in the state that a model of a few lines
// expects, both must pass the operator's check, and once every stream is deleted both buckets must be empty.
//
//	go test ./sim/differential -rapid.checks 1000
package differential
