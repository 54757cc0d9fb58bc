package sim

// list holds its elements in the order in which they were added; each holds the link by which it is in the list, so
// that one is taken out at once.
type list[T any] struct{ first, last *link[T] }

type link[T any] struct {
	of         *T
	prev, next *link[T]
}

// add appends the element to which the link belongs; it must be in no list by that link.
func (l *list[T]) add(k *link[T], of *T) {
	k.of, k.prev, k.next = of, l.last, nil
	if l.last != nil {
		l.last.next = k
	} else {
		l.first = k
	}
	l.last = k
}

// remove takes out what add has put in.
func (l *list[T]) remove(k *link[T]) {
	if k.prev != nil {
		k.prev.next = k.next
	} else {
		l.first = k.next
	}
	if k.next != nil {
		k.next.prev = k.prev
	} else {
		l.last = k.prev
	}
	*k = link[T]{}
}

// placed is what knows its place among those of which one is drawn; it is below 0 if it is not there.
type placed interface{ place() *int }

// putIn returns the list with x at its end.
func putIn[T placed](xs []T, x T) []T {
	*x.place() = len(xs)
	return append(xs, x)
}

// takeOut returns the list without x, if it is there; the last takes its place.
func takeOut[T placed](xs []T, x T) []T {
	at := x.place()
	if *at < 0 {
		return xs
	}
	n := len(xs) - 1
	last := xs[n]
	xs[*at] = last
	*last.place() = *at
	*at = -1
	var none T
	xs[n] = none
	return xs[:n]
}
