package members

type reader interface {
	closer
	read() string
}
