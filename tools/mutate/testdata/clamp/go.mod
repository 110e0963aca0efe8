module example.org/clamp

go 1.26
