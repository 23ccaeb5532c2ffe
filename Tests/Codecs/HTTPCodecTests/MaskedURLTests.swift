import HTTPCodec
import Testing

@Suite struct MaskedURLTests {
  @Test(arguments: [
    ("", ""),
    ("ws://127.0.0.1:9000/", "ws://127.0.0.1:9000/"),
    ("wss://[::1]:9000/a/b", "wss://[::1]:9000/a/b"),
    ("wss://user:s3cret@host/path?token=s3cret", "wss://***@host/path?***"),
    ("wss://s3cret@host", "wss://***@host"),
    ("wss://host/path?s3cret#s3cret", "wss://host/path?***"),
    ("wss://host#s3cret", "wss://host?***"),
    // Passwords with characters that should have been escaped, and texts that are not URLs.
    ("wss://user:s3/cret@host/", "wss://***@host/"),
    ("wss://user:s3cret?@host/", "wss://***"),
    ("wss://user:s3#cret@host/", "wss://***"),
    ("wss://user:s3@cret@host/", "wss://***@host/"),
    ("wss://host/?a=b@s3cret", "wss://***"),
    ("wss://user:s3cret", "wss://***"),
    ("wss://[s3cret!]/", "wss://***"),
    ("wss://user s3cret/", "wss://***"),
    ("wss://host/s3 cret", "wss://***"),
    ("wsss://user:s3cret@host/?s3cret", "wsss://***@host/?***"),
    ("wss:/user:s3cret@host/", "***"),
    ("user:s3cret@host?u=x://y", "***"),
    ("s3cret", "***"),
    ("http://host:80x/", "http://***"),
  ])
  func masksPossibleSecretsInAURL(text: String, masked: String) {
    #expect(MaskedURL.text(text) == masked)
  }

  @Test func masksPossibleSecretsInAnAddress() {
    #expect(MaskedURL.text("a:s3cret", impliedScheme: "redis") == "***")
  }
}
