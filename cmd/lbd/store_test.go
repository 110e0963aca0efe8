package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/xds/store/etcd"
)

func TestStoreFlags(t *testing.T) {
	for name, c := range map[string]struct {
		config Config
		err    string
	}{
		"none":                  {Config{}, ""},
		"one member":            {Config{Store: "etcd://a:2379/lbd"}, ""},
		"three":                 {Config{Store: "etcd://a:2379,10.0.0.1:2379,[::1]:2379/lbd/prod/"}, ""},
		"another scheme":        {Config{Store: "http://a:2379/lbd"}, "is not etcd://"},
		"no prefix":             {Config{Store: "etcd://a:2379/"}, "is not etcd://"},
		"no members":            {Config{Store: "etcd:///lbd"}, "is not etcd://"},
		"no port":               {Config{Store: "etcd://a,b:1/lbd"}, `"a" of`},
		"a user, no password":   {Config{Store: "etcd://a:1/lbd", StoreUser: "u"}, "--store-password"},
		"a certificate, no key": {Config{Store: "etcd://a:1/lbd", StoreCert: "c"}, "--store-key"},
		"a user, no store":      {Config{StoreUser: "u", StorePassword: "p"}, "need --store"},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.config.validateStore()
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("got %v, want %q", err, c.err)
			}
		})
	}
	got, err := parseEtcd("etcd://a:1,b:2/x/y/")
	if err != nil || !slices.Equal(got.Endpoints, []string{"a:1", "b:2"}) || got.Prefix != "x/y" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestStoreFiles(t *testing.T) {
	dir := t.TempDir()
	password := filepath.Join(dir, "password")
	if err := os.WriteFile(password, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := Config{Store: "etcd://a:1/lbd", StoreUser: "u", StorePassword: password}
	if e, err := c.etcdConfig(); err != nil || e.Username != "u" || e.Password != "secret" || e.TLS != nil {
		t.Errorf("got %+v, %v", e, err)
	}
	for name, c := range map[string]Config{
		"--store-password": {Store: "etcd://a:1/lbd", StoreUser: "u", StorePassword: filepath.Join(dir, "none")},
		"--store-ca":       {Store: "etcd://a:1/lbd", StoreCA: filepath.Join(dir, "none")},
		"no certificate":   {Store: "etcd://a:1/lbd", StoreCA: password},
		"--store-cert":     {Store: "etcd://a:1/lbd", StoreCert: password, StoreKey: password},
	} {
		if _, err := c.etcdConfig(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestStoreConditions(t *testing.T) {
	st := etcd.Status{}
	s := storeConditions{status: func() etcd.Status { return st }, began: map[string]time.Time{}}
	if got := s.list(); len(got) != 1 || !got[0].NotReady {
		t.Errorf("nothing is loaded: %+v", got)
	}
	st.Loaded, st.CopyErr = true, errors.New("disk on fire")
	st.Problems = map[string]string{"k1": "damaged", "k2": "newer"}
	first := s.list()
	if len(first) != 2 || first[0].NotReady || !strings.Contains(first[0].Text, "2 records") || !strings.Contains(first[0].Text, "k2: newer") ||
		!strings.Contains(first[1].Text, "disk on fire") {
		t.Errorf("got %+v", first)
	}
	if again := s.list(); !again[0].Since.Equal(first[0].Since) {
		t.Error("a condition that lasts begins again")
	}
	st = etcd.Status{Loaded: true}
	if got := s.list(); len(got) != 0 || len(s.began) != 0 {
		t.Errorf("solved: %+v", got)
	}
}
