package apart

const low = 1

func local() int { high := low; return high }
