package resource

// DecodeValid returns, of a body that DecodeBundle rejects, the resources that are
// valid each by themselves. It returns nil where there are none, or where the body
// as a whole cannot be read.
func DecodeValid(body []byte, o Options) (b *Bundle) {
	var err error
	defer func() {
		if err != nil {
			b = nil
		}
	}()
	defer refusePanic(Key{Type: typeBundle}, &err)
	d := newBundling(o)
	if err = d.read(body); err != nil {
		return nil
	}
	valid := d.bundle.Items[:0:0]
	for i, item := range d.bundle.Items {
		if !d.broken[i] {
			valid = append(valid, item)
		}
	}
	if len(valid) == 0 {
		return nil
	}
	d.bundle.Items = valid
	return d.bundle
}
