import ByteStreams
import Dialing
import HTTPCodec
import Reactor
import UpstreamProtocol
import UpstreamSession
import WebSocketCodec

/// The parts of opening a connection that the application protocol declares.
extension ConnectionAttempt {
  /// The longest time for which the attempt waits for the first bytes after the upgrade, unless half of
  /// `upstream.timeouts.upgrade` is shorter. A server that sends the first message sends it at once. If no bytes arrive
  /// in this time, the setup continues to wait for the message, and the text of its timeout names the missing event.
  private static var firstBytesLimit: TimeSpan { .seconds(1) }

  /// Sets the path and the query. Configured parameters may contain secrets, so they are sent to configured origins
  /// only.
  func setTarget(of request: inout ClientHandshake.Request) throws(AttemptError) {
    guard let declaration = preparedSettings.declaration else { return }
    do throws(TemplateError) {
      request.target = try declaration.target(request.target, settings.isConfigured(url) ? values : nil)
    } catch {
      throw .failed(
        AttemptReport(.upgrading, .preparation, "cannot create the query of '\(declaration.section).query': \(error)"))
    }
  }

  /// Checks whether a server has accepted the upgrade and then sends an HTTP response that refuses the connection.
  func checkRefusalAfterUpgrade(
    _ declaration: any ProtocolDeclaration, _ transport: Transport, _ input: inout ByteQueue
  ) async throws(AttemptError) {
    let deadline = loop.now + min(Self.firstBytesLimit, settings.session.limits.upgrading / 2)
    while true {
      switch declaration.isRefusal(afterUpgrade: input.bytes) {
      case false: return
      case true: throw try await refusal(over: transport, &input)
      case nil:
        guard await transport.channel.readable(until: deadline) != .deadline else { return }
        do throws(TransportError) {
          try await transport.receiveSome(into: &input)
        } catch .ended {
          // The connection has ended. The reader reports this end.
          return
        } catch {
          throw failure(error, transport)
        }
      }
    }
  }

  private func refusal(over transport: Transport, _ input: inout ByteQueue) async throws(AttemptError) -> AttemptError {
    var decoder = HTTPResponseHeadDecoder()
    while !decoder.isComplete {
      do throws(HTTPProtocolError) {
        let count = try decoder.append(input.bytes)
        input.consume(count)
      } catch {
        return .failed(
          AttemptReport(.upgrading, .handshake, "after the upgrade, the server sent an HTTP response that is not valid")
        )
      }
      guard !decoder.isComplete else { break }
      do throws(TransportError) {
        try await transport.receiveSome(into: &input)
      } catch {
        throw failure(error, transport)
      }
    }
    return try await error(for: HTTPRefusal(decoder), over: transport, &input)
  }
}
