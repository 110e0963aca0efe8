package members

func length[T any](l *list[T]) int { return len(l.items) }

// Names is an instance of the generic type.
var Names = list[string]{}
