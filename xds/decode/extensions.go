package decode

import (
	"bytes"
	"compress/gzip"
	_ "embed" // the descriptors of extensions
	"fmt"
	"io"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// zippedExtensions describes the messages of Envoy that an Any of a resource can carry and
// that are not linked in, each file after those that it imports: make extensions.
//
//go:embed extensions.binpb.gz
var zippedExtensions []byte

// extensions are the types of zippedExtensions. They are read when the first type that is
// not linked in has to be found, which takes some 30 ms and 8 MiB, of which 4 MiB stay
// (BenchmarkReadExtensions): once, whatever a body contains.
var extensions = sync.OnceValue(func() *dynamicpb.Types {
	files, err := readExtensions()
	if err != nil {
		panic(fmt.Errorf("read the descriptors of extensions: %w", err)) // the tests read the same
	}
	return dynamicpb.NewTypes(files)
})

func readExtensions() (*protoregistry.Files, error) {
	z, err := gzip.NewReader(bytes.NewReader(zippedExtensions))
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(z)
	if err != nil {
		return nil, err
	}
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(raw, &set); err != nil {
		return nil, err
	}
	files := &protoregistry.Files{}
	for _, f := range set.GetFile() {
		if _, err := protoregistry.GlobalFiles.FindFileByPath(f.GetName()); err == nil {
			continue // this binary links more in than lbd
		}
		fd, err := protodesc.NewFile(f, imports{files})
		if err != nil {
			return nil, err
		}
		if err := files.RegisterFile(fd); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// imports finds what extensions import: what is linked in, and other extensions.
type imports struct{ extensions *protoregistry.Files }

func (i imports) FindFileByPath(path string) (protoreflect.FileDescriptor, error) {
	if fd, err := protoregistry.GlobalFiles.FindFileByPath(path); err == nil {
		return fd, nil
	}
	return i.extensions.FindFileByPath(path)
}

func (i imports) FindDescriptorByName(name protoreflect.FullName) (protoreflect.Descriptor, error) {
	if d, err := protoregistry.GlobalFiles.FindDescriptorByName(name); err == nil {
		return d, nil
	}
	return i.extensions.FindDescriptorByName(name)
}

// isExtension reports whether m is a dynamic message.
func isExtension(m proto.Message) bool {
	_, ok := m.(*dynamicpb.Message)
	return ok
}

// anyTypes finds the types of messages that an Any carries: those that are linked in, as are
// all that lbd applies, and extensions, whose messages are dynamic.
var anyTypes = typeResolver{protoregistry.GlobalTypes}

type typeResolver struct{ *protoregistry.Types }

func (r typeResolver) FindMessageByURL(url string) (protoreflect.MessageType, error) {
	url = v3URL(url)
	if t, err := r.Types.FindMessageByURL(url); err == nil {
		return t, nil
	}
	return extensions().FindMessageByURL(url)
}
