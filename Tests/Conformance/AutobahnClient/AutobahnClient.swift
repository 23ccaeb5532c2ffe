import Glibc
import Host
import Logging
import Reactor

/// The client under test of the Autobahn TestSuite: the gateway's upstream session, with an application that echoes
/// every message.
///
///     autobahn-client ws://127.0.0.1:9001 drawbridge-1
///
/// runs all cases of the fuzzing server at this address under this agent name, and makes it write the report.
@main
enum AutobahnClient {
  static func main() {
    guard CommandLine.arguments.count == 3 else { end("usage: autobahn-client ws://HOST:PORT AGENT", status: 64) }
    let (server, agent) = (CommandLine.arguments[1], CommandLine.arguments[2])
    do throws(SystemError) {
      let loop = try EventLoop(index: 0)
      defer {
        loop.stop()
        loop.join()
      }
      let count = Conversation.run("\(server)/getCaseCount", on: loop).lastText.flatMap { Int($0) }
      guard let count else { end("\(server) does not tell how many cases it has", status: 69) }
      for number in stride(from: 1, through: count, by: 1) {
        _ = Conversation.run("\(server)/runCase?case=\(number)&agent=\(agent)", on: loop, echoes: true)
      }
      _ = Conversation.run("\(server)/updateReports?agent=\(agent)", on: loop)
    } catch {
      end("no event loop: \(error)", status: 71)
    }
  }

  private static func end(_ message: String, status: Int32) -> Never {
    Conversation.logger.error("autobahn-client", [.text("reason", message)])
    Conversation.logger.flush()
    exit(status)
  }
}
