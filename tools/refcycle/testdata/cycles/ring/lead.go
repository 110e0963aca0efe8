package ring

// Lead leads into the cycle; nothing leads back.
func Lead() int { return b[0].size() }
