# frozen_string_literal: true

require "openssl"
require "tempfile"

# A certificate for a name, signed by itself.
module TestCertificate
  # A file with the certificate, and a context of a server that uses it.
  def self.of(name)
    key = OpenSSL::PKey::EC.generate("prime256v1")
    certificate = sign(key, name)
    file = Tempfile.new("ca")
    file.write(certificate.to_pem)
    file.flush
    context = OpenSSL::SSL::SSLContext.new
    context.cert, context.key = certificate, key
    [file, context]
  end

  # Adds a certificate to those of the system, for this process.
  def self.trust(file)
    OpenSSL::SSL::SSLContext::DEFAULT_CERT_STORE.add_file(file.path)
  end

  def self.sign(key, name)
    certificate = OpenSSL::X509::Certificate.new
    certificate.version = 2
    certificate.serial = 1
    certificate.subject = certificate.issuer = OpenSSL::X509::Name.parse("/CN=#{name[0, 60]}")
    certificate.public_key = key
    certificate.not_before, certificate.not_after = Time.now - 60, Time.now + 3600
    extensions = OpenSSL::X509::ExtensionFactory.new(certificate, certificate)
    certificate.add_extension(extensions.create_extension("basicConstraints", "CA:TRUE", true))
    certificate.add_extension(extensions.create_extension("subjectAltName", "DNS:#{name}"))
    certificate.sign(key, "SHA256")
  end
  private_class_method :sign
end
