import Dialing
import HTTPCodec
import RedisProtocol
import TLSEngine

/// The address of one server and the settings for connecting to it. The files of its TLS settings have been read.
package struct RedisEndpoint: Sendable {
  package let address: RedisAddress
  let credentials: RedisCredentials
  let database: Int
  /// nil for a connection without TLS.
  let tls: RefreshableTLSContext?

  /// Reads the files of `tls` if the URL is `rediss://`, unless another user of `cache` has the same settings. This
  /// call blocks.
  ///
  /// The certificate must be valid for the URL's host, or for the address that Sentinel reports (`at`), unless the
  /// settings have a server name.
  package init(
    _ url: RedisURL, _ tls: TLSClientSettings, with cache: inout TLSContextCache
  ) throws(TLSSettingsError) {
    address = RedisAddress(host: url.host, port: url.port)
    credentials = url.credentials
    database = url.database
    var tls = tls
    // ALPN has no registered name for Redis.
    tls.applicationProtocols = []
    self.tls = url.isSecure ? try cache.context(for: tls, fileTimeout: HTTPEndpoint.fileTimeout) : nil
  }

  private init(_ address: RedisAddress, as other: RedisEndpoint) {
    self.address = address
    credentials = other.credentials
    database = other.database
    tls = other.tls
  }

  /// An endpoint with the same settings and another address.
  package func at(_ address: RedisAddress) -> RedisEndpoint { RedisEndpoint(address, as: self) }
}
