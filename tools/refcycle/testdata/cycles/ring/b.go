package ring

var b [3]c
