package members

// Count refers to a method of an instance of the generic type only.
func Count() int { return Names.len() }
