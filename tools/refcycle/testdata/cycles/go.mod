module example.org/cycles

go 1.26.0
