package members

type closer interface {
	close()
	reader() reader
}
